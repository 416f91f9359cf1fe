// Written by `npm run types` from src/foveate/look/draw; do not edit. Of dee733454087ca5b.
export const palette = {
  "steps": 65535,
  "sequential": "ACJNACNPACNQACRSACVUACZVACZXACdZAChbAChcACleACpgACpiACtkACxmACxnAC1pAC5rAC9tAC9vADBwADBwADFwADFwBDJwCDNwCzNwDjRwETVvFDZvFjZvGDdvGjhvHDhuHTluHzpuITtuIjtuJDxuJT1tJz1tKD5tKj9tKz9tLEBtLkFsL0JsMEJsMUNsMkRsNERsNUVsNkZsN0ZsOEdsOUhsOkhrO0lrPUprPktrP0trQExrQU1rQk1rQ05rRE9rRU9rRlBrR1FrSFFrSVJrSlNrS1RsTFRsTVVsTlZsTlZsT1dsUFhsUVhsUllsU1psVFpsVVttVlxtV11tWF1tWV5tWV9tWl9tW2BuXGFuXWFuXmJuX2NuYGRuYWRvYWVvYmZvY2ZvZGdvZWhwZmlwZ2lwaGpwaGtxaWtxamxxa21xbG1ybW5ybm9ybnBzb3BzcHFzcXJzcnN0c3N0dHR1dHV1dXV1dnZ2d3d2eHh2eXh3eXl3enp3e3t3fHt4fXx4fn14f314gH54gX94goB4g4B4hIF4hYJ4hYN4hoN4h4R4iIV4iYZ4ioZ4i4d4jIh4jYl4jol4j4p3kIt3kYx3kox3k413lI53lY93lo93l5B2mJF2mZJ2mpN2m5N2nJR2nZV1npZ1n5Z1oJd1oZh0opl0o5p0pJp0pZtzppxzp51zqJ5zqZ5yqp9yq6ByrKFxraJxrqJxr6NwsKRwsaVwsqZvs6ZvtKdvtahutqlut6ptuKttuattuqxsu61svK5rva9rvrBqv7BqwbFpwrJpw7NoxLRoxbVnxrVnx7ZmyLdlybhlyrlky7pkzLtjzbxizrxiz71h0L5g0r9g08Bf1MFe1cJe1sNd18Nc2MRb2cVa2sZa28dZ3MhY3slX38pW4MtV4cxU4sxT481S5M5R5c9Q5tBP6NFO6dJN6tNM69RL7NVK7dZI7tdH79hG8dlE8tpD89pC9NtA9dw/9t09+N47+d86+uA4++E2/eI0/eMz/eU0/eY2/ec3",
  "diverging": "LQBLLgFNMANPMQRSMwZUNAdWNglZNwpbOQxeOg1gPA9iPRBlPxJnQBNqQhVsQxZuRRhxRxpzSBt2Sh14Sx56TSB9TiF/UCOCUSSEUyaGVCiIViuKWC6LWjGMWzSOXTePXzqRYD2SYkCUZEOVZkaWZ0mYaUyZa0+bbVKcblWdcFifclugc16idWGjd2SkeWememqnfG2pfnCqgHOsgXWtg3euhXmwh3uxiX2zi4C0jYK2j4S3kYa5k4i6lYu8l429mY+/m5HAnZPCn5bDoZjFo5rGpZzIp57JqaHLq6PMraXOr6fPsanRsqvStK3Tta/Ut7HVuLPWurXXu7bYvbjZvrrawLzbwb7cw8DdxMLexsPfx8XgycfhysnizMvjzc3kz87l0NDm0tLn09To1dbp1tjq2Nrr2dvr2tzr293s3N7s3t/t3+Dt4OHu4ePu4uTv5OXv5ebw5ufw5+jx6enx6uvy6+zy7O3z7e7z7+/z8PD08fH08vP18/T19fX29vb29/b19/Xz9/Tw9/Pu+PLr+PLo+PHm+fDj+e/h+e7e+e3c+uzZ+uvX+urU+unS++nP++jM++fK/ObH/OXF/OTC/OPA/eK9/eG7/eC4/uC2/d6y/dyv/dus/dmo/dil/dai/dWf/dOb/dGY/dCV/c6S/c2O/cuL/cqI/ciF/caB/cV+/cN7/cJ4/cB0/b9x/b1u/btr/bpn/bhk/LZh+7Re+rJb+bBY965V9qxR9apO9KhL86ZI8qNF8aFC758/7p087Zs57Jk265cy6pUv6ZIs55Ap5o4m5Ywj5Iog44gd4oYa4YQX4IIU3oAT3H4S2n0S2HsR13kR1XgQ03YQ0XQP0HMPznEOzG8Nym4NyWwMx2oMxWkLw2cLwmYKwGQKvmIJvGEJul8IuV0Ht1wHtVoGs1gGsVcGr1YGrVUGq1QGqVIGp1EGpVAGo08GoU4Gn00GnUwGm0oGmUkGl0gHlUcHk0YHkUUHj0QHjUIHi0EHiUAHhz8HhT4Hgz0HgTwHfzsI",
  "lines": [
    "#0072b2",
    "#d55e00",
    "#009e73",
    "#cc79a7",
    "#000000",
    "#e69f00",
    "#56b4e9"
  ],
  "scales": {
    "row": {
      "caption": "by row: weight / the largest of its row (square root)",
      "marks": [
        [
          0,
          "0"
        ],
        [
          0.22360679774997896,
          "5 %"
        ],
        [
          0.5,
          "25 %"
        ],
        [
          0.7071067811865476,
          "50 %"
        ],
        [
          1,
          "100 %"
        ]
      ]
    },
    "absolute": {
      "caption": "weight, from 0 to 1",
      "marks": [
        [
          0,
          "0"
        ],
        [
          0.25,
          "0.25"
        ],
        [
          0.5,
          "0.5"
        ],
        [
          0.75,
          "0.75"
        ],
        [
          1,
          "1"
        ]
      ]
    }
  },
  "overlays": {
    "row": "weight / the panel's largest (at least 6 even shares)",
    "absolute": "weight"
  },
  "tint": {
    "dark": [
      0.72,
      0.26,
      0
    ],
    "light": [
      1,
      0.8,
      0.42
    ]
  },
  "even": 6
} as const;
