"""Makes Python look as on another system to the modules of foveate: ELSEWHERE names a JSON file.

What typeshed says is absent there is absent from the modules that foveate imports, and so are /proc
and /sys. On Windows text
is written with its line ends and in its code page, unless a call says otherwise, and what is open
or mapped is neither replaced nor removed.
"""

import builtins
import ctypes
import functools
import io
import json
import os
import sys
import types

plain_open, plain_listdir = open, os.listdir


class Reduced(types.ModuleType):
    """A module without some names, and with other values for some."""

    def __init__(self, module, absent, values):
        super().__init__(module.__name__, module.__doc__)
        vars(self).update(_module=module, _absent=frozenset(absent), **values)

    def __getattr__(self, name):
        if name in self._absent:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        return getattr(self._module, name)

    def __setattr__(self, name, value):
        setattr(self._module, name, value)


class WindowsLibrary(ctypes.CDLL):
    """A library, which on Windows has a name."""

    def __init__(self, name, *arguments, **options):
        if name is None:
            raise TypeError("bad argument type for built-in operation")
        super().__init__(name, *arguments, **options)


def reduce_imports(platform, absent, modules):
    """Give foveate the modules of that platform; other packages keep theirs."""
    windows = platform == "win32"
    values = {"sys": {"platform": platform}, "os": {}, "ctypes": {}}
    if windows:
        values["os"], values["ctypes"] = {"name": "nt", "linesep": "\r\n"}, {"CDLL": WindowsLibrary}
    for name in [name for name in absent if name not in sys.modules]:
        __import__(name)
    reduced = {
        name: Reduced(sys.modules[name], absent.get(name, ()), values.get(name, {}))
        for name in {*absent, *values}
    }
    import_module = builtins.__import__

    def imported(name, globals=None, locals=None, fromlist=(), level=0):
        module = import_module(name, globals, locals, fromlist, level)
        if (globals or {}).get("__name__", "").partition(".")[0] != "foveate":
            return module
        if name in modules:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return reduced.get(module.__name__, module)

    builtins.__import__ = imported


def write_as_windows():
    """Write text with CR LF, and read and write it in a code page, unless a call says otherwise."""
    plain = io.open

    @functools.wraps(plain)
    def opened(file, mode="r", buffering=-1, encoding=None, errors=None, newline=None, **options):
        if "b" not in mode:
            encoding = "cp1252" if encoding in (None, "locale") else encoding
            newline = "\r\n" if newline is None and set(mode) & set("wax+") else newline
        return plain(file, mode, buffering, encoding, errors, newline, **options)

    builtins.open = io.open = opened


def held(path):
    """Whether this process has a file open or mapped: that one, or one in that folder."""
    real, taken = os.path.realpath(path), set()
    for number in plain_listdir("/proc/self/fd"):
        try:
            taken.add(os.readlink(f"/proc/self/fd/{number}"))
        except OSError:
            continue
    with plain_open("/proc/self/maps", encoding="utf-8") as maps:
        taken.update("/" + line.rstrip("\n").partition("/")[2] for line in maps)
    return any(name == real or name.startswith(real + "/") for name in taken)


def called_by_foveate(frame):
    """Whether foveate calls, itself or by a helper of the standard library."""
    helpers = {"pathlib", "shutil", "contextlib", "tempfile", "genericpath", "functools", __name__}
    while frame.f_globals.get("__name__") in helpers:
        frame = frame.f_back
    return frame.f_globals.get("__name__", "").startswith("foveate")


def hide_the_files_of_linux():
    """There is no /proc and no /sys for foveate."""

    def hidden(function):
        @functools.wraps(function)
        def called(path, *rest, **options):
            name = path if isinstance(path, str) else getattr(path, "__fspath__", str)()
            if str(name).startswith(("/proc", "/sys")) and called_by_foveate(sys._getframe(1)):
                raise FileNotFoundError(2, "No such file or directory", str(name))
            return function(path, *rest, **options)

        return called

    for name in ("listdir", "scandir", "stat"):
        setattr(os, name, hidden(getattr(os, name)))
    builtins.open = io.open = hidden(io.open)


def refuse_what_is_open():
    """Neither replace nor remove, for foveate, what this process has open, as Windows does."""

    def guarded(function):
        @functools.wraps(function)
        def called(*paths, **options):
            if "dir_fd" not in options and called_by_foveate(sys._getframe(1)):
                for path in filter(held, paths):
                    raise PermissionError(13, "The process cannot access the file", str(path))
            return function(*paths, **options)

        return called

    for name in ("replace", "rename", "unlink", "remove", "rmdir"):
        setattr(os, name, guarded(getattr(os, name)))


if "ELSEWHERE" in os.environ:
    with open(os.environ["ELSEWHERE"], encoding="utf-8") as file:
        elsewhere = json.load(file)
    reduce_imports(**elsewhere)
    hide_the_files_of_linux()
    if elsewhere["platform"] == "win32":
        write_as_windows()
        refuse_what_is_open()
