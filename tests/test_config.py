"""Configs: one description, every kind comes back from TOML, and errors say where and what else."""

import sys
import tomllib
import types
import typing
from pathlib import Path
from typing import Any, Literal

import pydantic
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from foveate.config import (
    Config,
    ConfigError,
    Configurable,
    assigned,
    config_type,
    kinds,
    line_of,
    merge,
    parse_tree,
    read,
    shipped,
)
from foveate.kinds import load_kinds
from foveate.run import RunConfig
from foveate.train.config import TrainConfig

load_kinds()
REAL = [config for family in kinds().values() for config in family.values()]


class Shape(Configurable):
    class Config(Config, family="test_shape"):
        name: str = "shape"


class Circle(Shape):
    class Config(Shape.Config, kind="circle"):
        radius: float = pydantic.Field(default=1.0, gt=0)


class Polygon(Shape):
    class Config(Shape.Config, kind="polygon"):
        corners: int = 3
        colors: tuple[str, ...] = ()
        fill: Literal["none", "full"] = "none"


class Drawing(Config):
    imports: tuple[str, ...] = ()
    title: str
    shape: Shape.Config = Circle.Config()
    background: Shape.Config | None = None
    layers: tuple[Shape.Config, ...] = ()
    corner_radius: float = 0.0


def write(folder: Path, text: str, name: str = "drawing.toml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def error_of(folder: Path, text: str, *overrides: str) -> str:
    path = write(folder, text)
    with pytest.raises(ConfigError) as caught:
        read(Drawing, path, overrides)
    return str(caught.value)


def test_a_config_is_frozen_and_strict_and_needs_a_family() -> None:
    with pytest.raises(pydantic.ValidationError):
        Circle.Config().radius = 2.0
    for wrong in ("2", float("nan"), float("inf"), -1.0):
        with pytest.raises(pydantic.ValidationError):
            Circle.Config(radius=wrong)
    with pytest.raises(TypeError, match="family"):
        type("Lost", (Config,), {"__module__": __name__}, kind="lost")


def test_a_kind_may_be_a_word_or_a_table_alone_or_in_a_list(tmp_path: Path) -> None:
    for shape in ('shape = "polygon"', '[shape]\nkind = "polygon"'):
        drawing = read(Drawing, write(tmp_path, f'title = "a"\n{shape}'))
        assert drawing.shape == Polygon.Config()
    text = 'title = "a"\nlayers = ["circle", { kind = "polygon", corners = 5 }]'
    drawing = read(Drawing, write(tmp_path, text))
    assert drawing.layers == (Circle.Config(), Polygon.Config(corners=5))
    assert parse_tree(Drawing, tomllib.loads(drawing.toml())) == drawing


def test_defaults_then_base_then_file_then_overrides(tmp_path: Path) -> None:
    shape = '[shape]\nkind = "circle"\nradius = 2.0\nname = "b"'
    write(tmp_path, f'title = "base"\ncorner_radius = 1.0\n{shape}', "b.toml")
    path = write(tmp_path, 'base = "b.toml"\ncorner_radius = 3.0\n[shape]\nradius = 4.0')
    circle = Circle.Config(radius=5.0, name="b")
    expected = Drawing(title="base", corner_radius=3.0, shape=circle)
    assert read(Drawing, path, ["shape.radius=5.0"]) == expected


@pytest.mark.parametrize("shape", [".kind=polygon", "=polygon", "={kind=polygon}"])
def test_another_kind_keeps_what_both_know_and_names_the_rest(tmp_path, shape: str, capsys) -> None:
    text = 'title = "a"\n[shape]\nkind = "circle"\nname = "b"\nradius = 4.0'
    drawing = read(Drawing, write(tmp_path, text), [f"shape{shape}", "shape.corners=5"])
    assert drawing.shape == Polygon.Config(corners=5, name="b")
    expected = f"shape{shape} drops shape.radius = 4.0 (not of polygon)\n"
    assert capsys.readouterr().err == expected


def test_an_override_knows_the_default_kind_and_those_of_parts(tmp_path: Path, capsys) -> None:
    path = write(tmp_path, 'title = "a"\n[shape]\nradius = 4.0\n[background]\nkind = "circle"')
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())  # a file may begin with this mark
    drawing = read(Drawing, path, ["shape.kind=circle", "background.kind=polygon"])
    assert drawing.shape == Circle.Config(radius=4.0)
    assert drawing.background == Polygon.Config()
    assert read(Drawing, path, ["background=none"]).background is None
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("a.b=3", {"a": {"b": 3}}),
        ("a.b=1e-4", {"a": {"b": 1e-4}}),
        ("a=no", {"a": "no"}),
        ('a="3"', {"a": "3"}),
        ("a={kind=sgd, b=[x, 1e-4], f=true}", {"a": {"kind": "sgd", "b": ["x", 1e-4], "f": True}}),
        ('a={c="d e"}', {"a": {"c": "d e"}}),
        *((f"a={text}", {"a": text}) for text in ("{split}.tsv", "[a-z]", "{from}/{split}")),
    ],
)
def test_overrides_are_toml_or_bare_words(text: str, tree: dict[str, Any]) -> None:
    assert assigned(text) == tree


def test_differences_name_only_what_was_changed_and_merged_trees_have_both() -> None:
    assert Drawing(title="a").differences() == {"title": "a"}
    drawing = Drawing(title="a", shape=Polygon.Config(corners=5))
    assert drawing.differences() == {"title": "a", "shape.kind": "polygon", "shape.corners": 5}
    assert merge({"a": "gru"}, assigned("a.size=3")) == {"a": {"kind": "gru", "size": 3}}
    below, above = {"a": {"b": 1, "c": 2}}, {"a": {"b": 3, "d": 4}}
    assert merge(below, above) == {"a": {"b": 3, "c": 2, "d": 4}}
    assert (below, above) == ({"a": {"b": 1, "c": 2}}, {"a": {"b": 3, "d": 4}})


def test_imports_bring_kinds_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = (
        "from foveate.config import kinds\n"
        "Shape = kinds('test_shape')['test_shape']['circle'].__mro__[1]\n"
        "class Star(Shape, kind='star'):\n    points: int = 5\n"
    )
    write(tmp_path, code, "my_shapes.py")  # beside the config
    monkeypatch.setattr(sys, "path", list(sys.path))
    text = 'imports = ["my_shapes"]\ntitle = "a"\nshape = { kind = "star", points = 7 }'
    shape = read(Drawing, write(tmp_path, text)).tree()["shape"]
    sys.modules.pop("my_shapes")
    assert shape == {"kind": "star", "name": "shape", "points": 7}


def test_an_imported_kind_does_not_replace_one_of_foveate(tmp_path: Path, monkeypatch) -> None:
    before = kinds("score")["score"]["dot"]
    code = (
        "from foveate.nn.scores import Score\n"
        "class Mine(Score):\n    class Config(Score.Config, kind='dot'):\n        pass\n"
    )
    write(tmp_path, code, "own_dot.py")
    monkeypatch.syspath_prepend(str(tmp_path))
    message = r"cannot import 'own_dot': .*own_dot\.py: Mine\.Config: foveate has the score 'dot'"
    with pytest.raises(ConfigError, match=message):
        read(Drawing, write(tmp_path, 'imports = ["own_dot"]\ntitle = "a"'))
    assert kinds("score")["score"]["dot"] is before


CIRCLE = 'title = "a"\n[shape]\nkind = "circle"\n'


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('title = "a"\nshap = "circle"', [":2:", "shap", "did you mean 'shape'?"]),
        ('title = "a"\n\n[shape]\nkind = "circel"', [":4:", "shape.kind", "'circle'"]),
        (CIRCLE + "radios = 2.0", [":4:", "shape.radios", "did you mean 'radius'?"]),
        (CIRCLE + "radius = -2.0", [":4:", "shape.radius", "greater than 0", "-2.0"]),
        (CIRCLE + 'radius = "2"', [":4:", "shape.radius", "'2'"]),
        ('title = "a"\nshape = 3', [":2:", "shape", "table"]),
        ('title = "a"\nshape = { kind = { of = 3 } }', [":2:", "shape.kind", "no test shape"]),
        ('title = "a"\nbackground = { kind = "polygon", corners = 1.5 }', [":2:", "corners"]),
        ('title = "a"\nlayers = ["circle", "sqare"]', [":2:", "layers.1", "sqare"]),
        ("corner_radius = 1.0", ["title", "required"]),
        ('title = "a"\ncorner_radius = = 1', ["not TOML", "line 2"]),
    ],
)
def test_errors_name_file_line_key_and_remedy(tmp_path, text: str, expected: list[str]) -> None:
    message = error_of(tmp_path, text)
    assert all(part in message for part in ("drawing.toml", *expected)), message
    message = error_of(tmp_path, 'title = "a"', "corner_radios=2")
    assert message.startswith("the override ") and "corner_radius" in message


def test_configs_of_the_repository_are_read_in_any_folder(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    name = Path("configs/forecasting/airline-rnn.toml")
    assert shipped(name).is_file()
    assert shipped(Path("configs/none.toml")) == Path("configs/none.toml")
    assert shipped(Path("packaged/lineage.json")).is_file()
    name.parent.mkdir(parents=True)
    name.write_text("seed = 2")
    assert shipped(name) == name  # one's own comes first


def test_line_of_finds_keys_tables_and_dotted_keys() -> None:
    text = "a = 1\n[b]\nc = 2\n[b.d]\ne = 3\nf.g = 4\n"
    places = {"a": 1, "b.c": 3, "b.d.e": 5, "b.d.f.g": 6, "b.d.new": 4, "z": None}
    assert {key: line_of(text, tuple(key.split("."))) for key in places} == places


@given(st.text(st.characters(exclude_categories=["Cs"])), st.floats(0, 1e300))
def test_any_text_and_number_come_back(text: str, number: float) -> None:
    drawing = Drawing(title=text, corner_radius=number)
    assert parse_tree(Drawing, tomllib.loads(drawing.toml())) == drawing


def values(annotation: Any) -> st.SearchStrategy[Any]:
    """Values of the type of a field; limits are left to the config, which refuses the others."""
    origin, parts = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        return st.one_of(*map(values, parts))
    if origin is Literal:
        return st.sampled_from(parts)
    if origin is typing.Annotated:
        return values(parts[0])
    if origin is tuple:
        if parts[-1] is Ellipsis:
            return st.lists(values(parts[0]), max_size=2).map(tuple)
        return st.tuples(*map(values, parts))
    if origin is dict:
        return st.dictionaries(st.sampled_from("ab"), values(parts[1]), max_size=2)
    if isinstance(annotation, type) and issubclass(annotation, Config):
        return configs(annotation)
    plain: dict[Any, st.SearchStrategy[Any]] = {
        type(None): st.none(),
        bool: st.booleans(),
        int: st.integers(1, 64),
        float: st.one_of(st.floats(1e-6, 0.99), st.floats(1.0, 1e6)),
        str: st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
        Path: st.sampled_from([Path("a"), Path("b/c.txt")]),
    }
    assert annotation in plain, f"a field of type {annotation} cannot be written as TOML"
    return plain[annotation]


def configs(config: type[Config]) -> st.SearchStrategy[Config]:
    if config.family is not None and config not in kinds()[config.family].values():
        return st.sampled_from(sorted(kinds()[config.family])).flatmap(
            lambda kind: configs(kinds()[config.family or ""][kind])
        )

    @st.composite
    def draw_config(draw: st.DrawFn) -> Config:
        chosen = {}
        for name, field in config.model_fields.items():
            if field.is_required() or draw(st.integers(0, 3)) == 0:
                chosen[name] = draw(values(field.annotation))
        try:
            return config(**chosen)
        except pydantic.ValidationError:
            required = {k: v for k, v in chosen.items() if config.model_fields[k].is_required()}
            if "source" in config.model_fields:
                required.setdefault("source", "a.tsv")  # or several corpora: one of the two
            try:
                return config(**required)
            except pydantic.ValidationError:
                assume(False)
                raise

    return st.deferred(draw_config)


@pytest.mark.parametrize("config", REAL, ids=lambda c: f"{c.family}.{c.kind}")
@settings(max_examples=4)
@given(data=st.data())
def test_every_kind_comes_back_from_toml(config: type[Config], data: st.DataObject) -> None:
    made = data.draw(configs(config))
    tree = tomllib.loads(made.toml())
    assert config.parse(tree) == made
    assert parse_tree(config, made.tree()) == made


DEEP: tuple[Any, Any] = (1, {})  # a list and a table of 5,000 lists and tables in each other
for _ in range(5000):
    DEEP = ([DEEP[0]], {"kind": DEEP[1]})
HOSTILE: dict[str, Any] = {
    "huge": 10**23, "huge negative": -(10**23), "thousands of digits": 16**5000, "64 bits": 2**63,
    "negative": -1, "NaN": float("nan"), "infinite": float("inf"), "large": 1e308, "empty": "",
    "long": "x" * 100_000, "surrogate": "\ud800", "deep list": DEEP[0], "null": None,
    "deep table": DEEP[1], "table": {}, "empty key": {"": 1}, "list": [], "lists": [[]],
    "kind": {"kind": 10**23}, "truth": True, "table of none": {"kind": None},
}  # fmt: skip


def schema() -> list[type[Config]]:
    found, left = dict[type[Config], None](), [RunConfig, *REAL]
    while left:
        config = left.pop()
        if config not in found:
            found[config] = None
            parts = (config_type(field.annotation) for field in config.model_fields.values())
            left += [part for part in parts if part is not None]
    return list(found)


@pytest.mark.parametrize("config", schema(), ids=lambda c: c.__qualname__)
def test_every_field_takes_a_hostile_value_or_refuses_it(config: type[Config]) -> None:
    for name in config.model_fields:
        for value in HOSTILE.values():
            try:
                config.parse({name: value}).tree()
            except ConfigError as error:
                assert len(str(error)) < 3000


@pytest.mark.parametrize(
    "text",
    [
        *("a=10**23", f"seed={10**23}", f"seed={'9' * 5000}", f"seed=0x{'f' * 5000}", "seed=nan"),
        *(f"a={'[' * 3000}", f"a={'{b=' * 3000}", f"a={'[' * 400}{']' * 400}", "=1", "a..b=1"),
        *(f"{'.'.join('a' * 5000)}=1", "x={a=b\0}", "imports=[1]", 'imports=[""]', "base=1"),
    ],
    ids=lambda text: text[:20],
)
def test_a_hostile_file_or_override_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text(text)
    (tmp_path / "good.toml").write_text("[task]\nkind='language'\ntext='x'\n[model]\nkind='gpt'\n")
    for path, overrides in ((tmp_path / "c.toml", []), (tmp_path / "good.toml", [text])):
        with pytest.raises(ConfigError) as caught:
            read(RunConfig, path, overrides)
        assert len(str(caught.value)) < 3000


def test_what_is_absent_stays_absent_through_toml() -> None:
    config = TrainConfig.parse({"clip_norm": "none", "validation": {"every": "none"}})
    assert config.clip_norm is config.validation.every is None and "max_steps" not in config.tree()
    assert TrainConfig.parse(tomllib.loads(config.toml())) == config


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (None, r"'my_kinds'\); put it here or on PYTHONPATH, or name its file with --import$"),
        ("import no_such_library", r"no_such_library'\)$"),
        ("a = 1\nb = a.c", r"my_kinds\.py:2: AttributeError: 'int' object"),
        ("def (", r"my_kinds\.py:1: invalid syntax"),
        ("{}['x']", r"my_kinds\.py:1: KeyError"),
        ("raise SystemExit(3)", r"my_kinds\.py:1: SystemExit"),
    ],
)
def test_a_module_that_cannot_be_imported_is_named(code, message, tmp_path, monkeypatch) -> None:
    if code is not None:
        write(tmp_path, code, "my_kinds.py")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ConfigError, match=message):
        parse_tree(TrainConfig, {"imports": ["my_kinds"]})


CONFIGS = Path(__file__).parent.parent / "configs"
FILES = sorted(CONFIGS.rglob("*.toml"))


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(CONFIGS)))
def test_a_config_parses_comes_back_and_says_in_a_comment_what_it_is(path: Path) -> None:
    config = read(RunConfig, path)
    assert parse_tree(RunConfig, tomllib.loads(config.toml())) == config
    assert path.read_text(encoding="utf-8").startswith("#")
