"""The verb ``translate``: lines from standard input, or documents.

Does not live here: what it does (`foveate.cli.streams`, `foveate.cli.streams`) and what helps it
(`foveate.documents.memory`).
"""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foveate.cli import options
from foveate.cli.options import (
    BatchTokens,
    BeamSize,
    Checkpoint,
    Decode,
    Ensemble,
    LengthPenalty,
    Precision,
    RunPath,
    Threads,
)

if TYPE_CHECKING:
    from foveate.cli.streams import Tally, Wanted
    from foveate.cli.workers import Loading
    from foveate.documents.memory import Aided

NumHypotheses = Annotated[int, typer.Option(min=1, help="more: n-best list")]
Scores = Annotated[bool, typer.Option("--scores", help="SCORE TAB TRANSLATION")]
Alignments = Annotated[Path | None, typer.Option(help="Pharaoh file 0-0 1-2")]
Attention = Annotated[Path | None, typer.Option(help="one HTML file of the maps")]
To = Annotated[str | None, typer.Option(help="language, if the run knows several")]
PrefixFile = Annotated[Path | None, typer.Option(help="how outputs begin, line by line")]
Format = Annotated[str | None, typer.Option(help="text, html, tsv, jsonl, po, tmx, srt or docx")]
Source = Annotated[Path | None, typer.Option("--in", help="a document, or a folder of them")]
Target = Annotated[Path | None, typer.Option("--out", help="where it goes")]
Protect = Annotated[
    list[str] | None, typer.Option(metavar="REGEX", help="kept in documents, beside URLs, …")
]
Again = Annotated[bool, typer.Option("--again", help="in catalogues, what is translated too")]
Terms = Annotated[Path | None, typer.Option(help="TERM TAB VARIANT|VARIANT: one must be there")]
Force = Annotated[list[str] | None, typer.Option(metavar="PHRASE", help="in every output")]
Ban = Annotated[list[str] | None, typer.Option(metavar="PHRASE", help="in no output")]
Known = Annotated[Path | None, typer.Option(help="TMX or TSV, asked first")]
Fuzzy = Annotated[
    float, typer.Option(min=1, max=100, help="% of likeness that will do in the memory")
]
CopyUnknown = Annotated[bool, typer.Option("--copy-unknown", help="put source words for <unk>")]
Silence = Annotated[
    list[str] | None, typer.Option(metavar="PLACE[:HEAD,…]", help="heads that add nothing")
]
Engine = Annotated[str, typer.Option(help="torch, ctranslate2, or ray for a folder")]
Sample = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="lines to try ctranslate2 on, without the run's own data"),
]
Processes = Annotated[
    int | None, typer.Option(min=1, help="of one thread each, for bulk work; of a folder: all")
]


line = typer.Typer()


def add(app: typer.Typer) -> None:
    """Register the verb."""
    app.registered_commands += line.registered_commands


@line.command()
def translate(
    run: RunPath,
    overrides: Decode = None,
    beam_size: BeamSize = None,
    num_hypotheses: NumHypotheses = 1,
    scores: Scores = False,
    alignments: Alignments = None,
    attention: Attention = None,
    to: To = None,
    prefix_file: PrefixFile = None,
    format: Format = None,
    source: Source = None,
    target: Target = None,
    protect: Protect = None,
    again: Again = False,
    glossary: Terms = None,
    force: Force = None,
    ban: Ban = None,
    memory: Known = None,
    fuzzy: Fuzzy = 100.0,
    copy_unknown: CopyUnknown = False,
    silence: Silence = None,
    ensemble: Ensemble = None,
    batch_tokens: BatchTokens = None,
    length_penalty: LengthPenalty = None,
    checkpoint: Checkpoint = "best",
    precision: Precision = "fp32",
    engine: Engine = "torch",
    sample: Sample = None,
    processes: Processes = None,
    threads: Threads = None,
) -> None:
    """Translate lines of stdin, a document, or a folder of them."""
    from foveate.cli.streams import Files, Wanted, translate_document
    from foveate.documents.documents import Choices
    from foveate.documents.memory import Aided, read_aids, refuse_processes
    from foveate.documents.spans import Rules
    from foveate.look.edit import edit, silenced

    choices = options.search(beam_size, length_penalty, batch_tokens) | {"to": to}
    wanted = Wanted(num_hypotheses, scores, alignments, attention, prefix_file)
    aids = read_aids(glossary, memory, to, fuzzy, force, ban, copy_unknown)
    kept = Choices(Rules(tuple(protect or ())), to, again)
    files = Files(format, source, target)
    files.refuse(wanted, processes or 1)
    if files.folder or (processes or 1) > 1:
        refuse_processes(aids, silence)
    how = options.loading(run, checkpoint, threads, ensemble, overrides, precision, engine, sample)
    if files.folder:
        from foveate.cli.folders import Team, translate_folder

        team = Team(processes, threads or 1, lambda text: options.say([text]))
        return options.say(translate_folder(files, how, kept, choices, team).report())
    aided = Aided(how.load(), aids)
    with edit(aided.run.model, silenced(silence or [])):
        if files.given:
            said = translate_document(aided, files, kept, choices)
        else:
            said = _lines(aided, how, processes or 1, wanted, choices)
    options.say(said.report() + aided.report())


def _lines(
    aided: Aided, loading: Loading, processes: int, wanted: Wanted, search: dict[str, Any]
) -> Tally:
    """Standard input to standard output."""
    from foveate.cli import streams
    from foveate.cli.workers import Crew

    options.hint("Type a sentence a line; Ctrl-D ends.")
    with contextlib.ExitStack() as stack:
        several = processes > 1
        crew = stack.enter_context(Crew(aided.run, loading, processes)) if several else None
        return streams.translate(crew or aided, sys.stdin.buffer, sys.stdout, wanted, search)
