"""Put together what the site is rendered from: the docs, and pages written from the program.

    python tools/website/site_sources.py build/site-source

The pages of docs/ are copied as they are, in the order of docs/README.md; the references of
commands and of configs are written from the command line and the kinds, and the pages of models by
``foveate publish``. ``make site`` does this and renders it with Sphinx.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from foveate.cli import app, options
from foveate.cli.options import to_json
from foveate.kinds import Kind, config_schema, described
from foveate.run import RunConfig

if TYPE_CHECKING:
    from typer._click import Command, Context, Parameter

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
PAGES = ("SECURITY.md", "CONTRIBUTING.md", "CHANGELOG.md")
LINKED = re.compile(r"\]\(([\w/-]+)\.md\)")
PICTURE = re.compile(r'<picture>.*? srcset="(.*?)".*? alt="(.*?)" src="(.*?)".*?</picture>')


@dataclass
class Exhibit:
    """A published page of the gallery: runs that ship, in one HTML file."""

    name: str
    title: str
    about: str
    models: tuple[str, ...]
    examples: tuple[str, ...] = ()


FIRST = Exhibit(
    "en-fr",
    "A Transformer that translates",
    "English to French, 3 + 3 layers, trained in minutes on two processor cores.",
    ("packaged/en-fr",),
    (
        "We do not speak to the young woman.",
        "The worried woman speaks to the young Italian doctor in the quiet garden.",
        "She closes the old window.",
        "Alice says that she is too happy.",
    ),
)
GALLERY = (
    Exhibit(
        "with-and-without-attention",
        "Without attention, and with it",
        "The same sentences, read into one vector (Sutskever et al., 2014) and with attention "
        "(Bahdanau et al., 2015). Long sentences show the difference.",
        ("packaged/no-attention", "packaged/rnn"),
    ),
    Exhibit(
        "language-model",
        "A language model",
        "It continues a text, a word at a time, with the probabilities of the alternatives.",
        ("packaged/lm",),
    ),
    Exhibit(
        "classifier",
        "A classifier",
        "Question, negation or statement, and what each word contributes to the label.",
        ("packaged/kinds-of-sentences",),
    ),
)


def main(out: Path) -> None:
    """Write all sources of the site into a folder, which is made anew."""
    shutil.rmtree(out, ignore_errors=True)
    shutil.copytree(ROOT / "docs", out / "docs", ignore=shutil.ignore_patterns("__pycache__"))
    for name in PAGES:
        shutil.copy(ROOT / name, out / name)
    shutil.copy(HERE / "conf.py", out / "conf.py")
    (out / "_static").mkdir()
    shutil.copy(HERE / "site.css", out / "_static" / "site.css")
    for exhibit in (FIRST, *GALLERY):
        publish(exhibit, out / "extra" / "pages" / f"{exhibit.name}.html")
    pages = {**command_pages(), **config_pages(), **gallery(), **sections(out)}
    for name, text in pages.items():
        path = out / f"{name}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="\n")
    schema = to_json(config_schema(RunConfig))
    (out / "extra" / "config.schema.json").write_text(schema, encoding="utf-8", newline="\n")
    print(f"{out}: {len(list(out.rglob('*.md')))} pages", flush=True)


def publish(exhibit: Exhibit, path: Path) -> None:
    """The page of an exhibit by ``foveate publish``. Raises ``CalledProcessError``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    program = [sys.executable, "-m", "foveate", "publish", *exhibit.models]
    examples = [part for text in exhibit.examples for part in ("--example", text)]
    command = [*program, "--single", str(path), "--title", exhibit.title, *examples]
    subprocess.run(command, check=True)


# ------------------------------------------------------------------------------ order of the pages


def toctree(names: list[str], *choices: str) -> str:
    """A directive that places pages below the page that holds it."""
    options_ = "".join(f":{choice}:\n" for choice in choices)
    return "\n".join(["```{toctree}", options_ + "", *names, "```", ""])


def sections(out: Path) -> dict[str, str]:
    """The first page, and the pages that list others, in the order of docs/README.md."""
    index = (ROOT / "docs" / "README.md").read_text("utf-8")
    pages: dict[str, str] = {}
    for part in index.split("\n## ")[1:]:
        title, _, text = part.partition("\n")
        name = title.lower()
        linked = [f"/docs/{link}" for link in LINKED.findall(text)]
        text = re.sub(r"\]\((?!https?:)([^)]+)\)", r"](/docs/\1)", text)
        text = text.replace("\n### ", "\n## ")
        more = {"reference": ["/commands/index", "/configs/index", "/api/foveate/index"]}
        own = ["/SECURITY", "/CONTRIBUTING", "/CHANGELOG"] if name == "development" else []
        linked += more.get(name, []) + own
        pages[name] = f"# {title}\n{text}\n{toctree(linked, 'hidden')}"
    for name in ("docs/lectures/README", "docs/history/README"):
        text = (out / f"{name}.md").read_text("utf-8")
        folder = (out / name).parent
        inner = sorted(page.stem for page in folder.glob("*.md") if page.stem != "README")
        pages[name] = f"{text}\n{toctree(inner, 'hidden')}"
    pages["index"] = first_page(list(pages))
    return pages


def first_page(names: list[str]) -> str:
    """What foveate is, with a model that answers on the page itself."""
    readme = (ROOT / "README.md").read_text("utf-8").partition("\n## ")[0]
    readme = re.sub(r"\]\((?!https?:)([^)]+)\)", r"](/\1)", readme)
    head, rest = re.split(r"<picture>.*?</picture>\n", readme, maxsplit=1, flags=re.DOTALL)
    top = [f"/{name}" for name in names if "/" not in name]
    return "\n".join(
        [
            head,
            f'<iframe class="living tall" src="pages/{FIRST.name}.html" title="{FIRST.title}" '
            'loading="lazy"></iframe>\n',
            f"The model runs in this page: {FIRST.about} Type a sentence of your own; nothing is "
            f'sent anywhere. <a href="pages/{FIRST.name}.html">Open it alone</a>, or see '
            "[more models](/gallery.md).\n",
            "- " + PICTURE.sub(both_schemes, rest.partition("\n- ")[2]),
            toctree([*top, "/gallery"], "hidden"),
        ]
    )


def both_schemes(picture: re.Match[str]) -> str:
    """A picture for a light and a dark screen, of which the theme shows one."""
    dark, alt, light = picture.groups()
    return "".join(
        f"```{{image}} /{path}\n:class: only-{scheme}\n:alt: {alt}\n```\n"
        for scheme, path in (("light", light), ("dark", dark))
    )


def gallery() -> dict[str, str]:
    """Pages of models, each in a frame."""
    about = (
        "Each page holds its models and answers by itself, without a server "
        "([one file, without PyTorch](/docs/guide/engine.md)). Save one and open it from a disk.\n"
    )
    parts = ["# Gallery\n", about]
    for exhibit in GALLERY:
        parts += [
            f"## {exhibit.title}\n",
            f"{exhibit.about}\n",
            f'<iframe class="living tall" src="pages/{exhibit.name}.html" '
            f'title="{exhibit.title}" loading="lazy"></iframe>\n',
            f"    foveate publish {' '.join(exhibit.models)} --single {exhibit.name}.html\n",
            f'<a href="pages/{exhibit.name}.html">Open it alone</a>\n',
        ]
    return {"gallery": "\n".join(parts)}


# ------------------------------------------------------------------------------ commands


def command_pages() -> dict[str, str]:
    """A page for each verb, from the command line itself."""
    root = typer.main.get_command(app)
    assert isinstance(root, options.VerbGroup)
    context = root.context_class(root, info_name="foveate")
    pages, lines = {}, ["# Commands\n", "`foveate VERB --help` shows the same.\n"]
    names = root.list_commands(context)
    for name in names:
        command = root.get_command(context, name)
        assert command is not None
        pages[f"commands/{name}"] = "\n".join(command_lines(command, context, name, 1))
        summary = command.get_short_help_str(200)
        lines.append(f"- [`foveate {name}`]({name}.md) {plain(summary)}")
    lines += ["", toctree(names, "hidden")]
    return {"commands/index": "\n".join(lines), **pages}


def command_lines(command: Command, above: Context, name: str, level: int) -> Iterator[str]:
    """Heading, usage, meaning, arguments and options of a command, and of those below it."""
    context = command.context_class(command, above, info_name=name)
    yield f"{'#' * level} {context.command_path}\n"
    yield f"{plain(command.help or '')}\n"
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    yield f"    {usage}\n"
    rows = [row for each in command.params if (row := parameter_row(each, context))]
    if rows:
        yield from ("| type | meaning |", "| --- | --- |", *rows, "")
    if isinstance(command, options.VerbGroup):
        for inner_name in command.list_commands(context):
            inner = command.get_command(context, inner_name)
            if inner is not None:
                yield from command_lines(inner, context, inner_name, level + 1)


def parameter_row(parameter: Parameter, context: Context) -> str | None:
    """A line of the table of arguments and options, as ``--help`` has it."""
    record = parameter.get_help_record(context)
    if record is None or "--help" in parameter.opts:
        return None
    return f"| {code(record[0])} | {plain(record[1])} |"


# ------------------------------------------------------------------------------ configs


def config_pages() -> dict[str, str]:
    """A page for the tables of a config, and for each family of kinds."""
    pages, names = {}, []
    lines = [
        "# Configs\n",
        "A config is a TOML file of [tables](table.md); where a field is a choice, it names a "
        "kind of a family, or is a table with `kind`. "
        '<a href="../config.schema.json">config.schema.json</a> is the JSON Schema of all '
        "(`foveate kinds --schema`): with `#:schema config.schema.json` in its first line an "
        "editor completes and checks a config.\n",
    ]
    members = described(None, RunConfig)
    for family, kinds in groupby(members, lambda kind: kind.family):
        known = list(kinds)
        names.append(family)
        lines.append(f"- [{family}]({family}.md): {', '.join(code(kind.name) for kind in known)}")
        pages[f"configs/{family}"] = "\n".join([f"# {family}\n", *map(kind_text, known)])
    return {"configs/index": "\n".join([*lines, "", toctree(names, "hidden")]), **pages}


def kind_text(kind: Kind) -> str:
    """A kind: its meaning, how it differs from its paper, its fields."""
    lines = [f"## {kind.name}\n", f"{plain(kind.meaning)}.\n"]
    if kind.differs:
        lines.append(f"Differs from the paper: {plain(kind.differs)}\n")
    if kind.fields:
        lines += ["| field | type | default | meaning |", "| --- | --- | --- | --- |"]
    for name, field in kind.fields.items():
        default = "required" if field.default is None else code(field.default)
        type_ = code(f"{field.type} {field.limits}".strip())
        lines.append(f"| {code(name)} | {type_} | {default} | {plain(field.meaning)} |")
    return "\n".join([*lines, ""])


def code(text: str) -> str:
    """A code span that may stand in a table."""
    return f"`{text}`".replace("|", "\\|") if text else ""


def plain(text: str) -> str:
    """Text of a docstring or of a help as Markdown: code stays, nothing else is markup."""
    parts = re.split(r"(``[^`]+``|`[^`]+`)", " ".join(text.split()))
    for place, part in enumerate(parts):
        marks = re.sub(r"([\\*_<>\[\]|$])", r"\\\1", part)
        parts[place] = code(part.strip("`")) if place % 2 else marks
    return "".join(parts)


if __name__ == "__main__":
    typer.run(main)
