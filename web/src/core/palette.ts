// Written by `npm run types` from src/foveate/look/draw; do not edit. Of dee733454087ca5b.
export const palette = {
  "steps": 65535,
  "sequential": "kkkkkkkkkkkkkkkkkkkkkkkkoonnnnmmmmlmmlmlmlmllmllllmlllllllmlllllllllllllllllklllllllllllkllllllllklllllllkllllllkllllllklllllkllllllllllllkllllllllllllllllllllllllllllllllllllllllllllllllllllllllllmlllllllllllllllmllllllllllmllllllllmlllllllmlllllmlllmkkkklklllkllkllkllklllklklkllklllkllklllkllkllklllkllkllkllklllkllkllkllklllkllkllkllklllkllkllklllkllklllkllkllklllklllkllklllklllkllklllklllklllklllklllklllkllllklllkllllkllllkllllkllllklllllklllllklllllklllllllklllllllklllllllllkllllllllllllllklllllllllmll¸mlmmlmmmlmmmmmlmmmmlkkkkkkkjkkkkjkkkkkjkkkkkjkkkkkkkkkkjkkkkkkkkkkkkkkklkkkkkkkkkklkkkkkklkkkkklkkkklkkklkkklkklkkklklkklkklkkklkkkkkkkkkkkkkkkkkkkjkkkkkkkjkkkkkjkkkjkkkjkkkjkkjkkjkkjkkjkjkkjkjkjkjkjkjkjjkjkjjkjjkjjkjjjjkjjjjjjjjjjjjjjjjijjijjijiijiiijlml",
  "diverging": "lmlmlmlmlmlmlmlmmlmlmlmlmlmmmlmmlmmmlmmmlmmlmmmlmmmlmmmmmmmmmmmmmmmmmmmmmmmmlmlmlmlmlmlmlmlmlmlmlmlmlmllllmllllmlllmllllmllllmllkkklkklkkklkkklkklkkklkkljkkkkkkkkkkkkkkkkkkkkkkkkjjjjijjjjjjijjjjjjijjjjjjjiiiijiiijiiijiiijiiiijiiiiiiiiiiiiiiiiiiiiiiiiiiiiiklmlmlmlmlmlmlmlmmlmlmlmlmmnnnnnnnnnnnnnnnnnnnnnnnnnmmmmmnmmmmnmmmmnmmmmnmmmmmmmmmmlmmmmmmlmmmmmlmmmmmmlllllllmllllllmllllllmlllkjjjjkjjjjjjjjjkjjjjjjjjjkiijijijiijijijiijijijiijiiiiiiiiiihiiiiiiihiiiiiiiiiijiijiijiijiijijiijiijiijjjjijjjjjjijjjjjjijjjjjjj¶mmnmmnmnmmnmnmmnmnmmnmnmmmmllmlmlmllmlmllmlmllmlmlmllmlmlmlmlmlmlmlmlmlmlmlmllllllllllllllllllllllllllkklklklklklklklklkklklklkjihihhihihihihihhihihihihighhghhhghhhghhhghhhghhhghhhhhhghhhhhhhhhghhhhhhhhhhjjkjkjkjkjjkjkjkjkjkjjkjkkkkkkkkkkkkkklkkkkkkkkkkkl",
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
