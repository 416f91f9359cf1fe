"""Protected spans, HTML and a glossary through a trained run: what is kept, and what it costs.

    python benchmarks/passages.py RUN

From the test sentences of Multi30k: 2,000 sentences and 500 HTML fragments with protected spans
strewn in, and a glossary of 200 terms learnt from word links of the training pairs.
"""

from __future__ import annotations

import json
import random
import re
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import html5lib
import torch
from typer import Argument

import harness
from foveate.align.aer import Gold, Head, choose
from foveate.align.ibm import Aligner as WordAligner
from foveate.data.words import words
from foveate.documents.html import html_passage
from foveate.documents.memory import Assistance, AssistedRun, Glossary, aligner, holds
from foveate.documents.spans import HIDDEN, SHOWN, Rules
from foveate.documents.translate import Passage, joined_all, text_passage
from foveate.run import Run, load
from foveate.tasks import metrics

TERMS = 200


def spans(rng: random.Random) -> str:
    """A protected span of any kind."""
    n = rng.randrange(2, 9999)
    return rng.choice(
        [
            f"https://example.org/{n}?a=1&b={n % 7}",
            f"www.example-{n}.com/x",
            f"user{n}@example.org",
            str(n),
            f"{n}.{n % 100}",
            f"{n % 24}:{n % 60:02}",
            f"{{{{name{n}}}}}",
            f"{{{n % 10}}}",
            f"${{key{n}}}",
            "%s",
            "%d",
            f"%(item{n})s",
            f"<br{n}/>",
        ]
    )


def strewn(line: str, rng: random.Random) -> str:
    """A sentence with one to four protected spans at random places between its words."""
    parts = line.split()
    for _ in range(rng.randint(1, 4)):
        span = spans(rng)
        span = f"({span})" if rng.random() < 0.15 else span
        parts.insert(rng.randint(0, len(parts)), span)
    return " ".join(parts)


def escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def fragment(lines: Sequence[str], rng: random.Random) -> str:
    """Some sentences as HTML: blocks, nested inline elements, objects, protected spans."""
    result = []
    for line in lines:
        parts = [escaped(part) for part in strewn(line, rng).split()]
        for _ in range(rng.randint(0, 3)):
            a = rng.randrange(len(parts))
            b = rng.randint(a + 1, min(len(parts), a + 4))
            name = rng.choice(["b", "i", "em", "strong", "span", "u"])
            inner = " ".join(parts[a:b])
            parts[a:b] = [f'<{name} class="c{rng.randrange(9)}">{inner}</{name}>']
        if rng.random() < 0.4:
            n = rng.randrange(len(parts))
            if "<a" not in parts[n]:
                parts[n] = f'<a href="/x?a=1&amp;b={n}">{parts[n]}</a>'
        if rng.random() < 0.3:
            extra = rng.choice(['<img src="x.png" alt="">', "<code>x &lt; 3</code>", "<br>"])
            parts.insert(rng.randint(0, len(parts)), extra)
        name = rng.choice(["p", "div", "li", "h2", "blockquote"])
        block = f"<{name}>{' '.join(parts)}</{name}>"
        result.append(f"<ul>{block}</ul>" if name == "li" else block)
    return rng.choice(["", "\n"]).join(result)


def parsed(html: str) -> tuple[bool, Counter[str], list[str]]:
    """Whether another parser finds no fault; its elements with attributes; the texts between."""
    parser = html5lib.HTMLParser(namespaceHTMLElements=False)
    tree = parser.parseFragment(html)
    nodes = [e for e in tree.iter() if isinstance(e.tag, str)]
    elements = Counter(f"{e.tag} {sorted(e.attrib.items())}" for e in nodes)
    texts = [text for e in nodes for text in (e.text, e.tail) if text]
    return not parser.errors, elements, texts


def through(run: Run, passages: Sequence[Passage], head: Head) -> list[str]:
    lines = [line for passage in passages for line in passage.sentences]
    answers = iter([str(a) for a in run.translate(lines)])
    each = [[next(answers) for _ in passage.sentences] for passage in passages]
    return joined_all(passages, each, aligner(run, head))


def linked(pairs: Sequence[tuple[str, str]]) -> list[set[Any]]:
    """Word links of both directions that agree."""
    model: WordAligner = WordAligner.Config.parse({"kind": "agreement"}).build()
    cut = [(words(s), words(t)) for s, t in pairs]
    model.train(cut)
    return model.align(cut)


def chosen_head(run: Run, pairs: Sequence[tuple[str, str]]) -> Head:
    """The head that agrees best with these links."""
    some = [Gold(each, each) for each in linked(pairs)[:300]]
    maps = run.task.word_maps(run.model, list(pairs[:300]))
    return choose(maps, some)[0][0]


def learnt(pairs: Sequence[tuple[str, str]], links: Sequence[set[Any]]) -> dict[str, Counter[str]]:
    """What each source word is linked to, where it has one link."""
    result: dict[str, Counter[str]] = defaultdict(Counter)
    for (source, target), each in zip(pairs, links, strict=True):
        s, t = words(source.lower()), words(target.lower())
        alone = Counter(i for i, _ in each)
        for i, j in each:
            if alone[i] == 1 and len(s[i]) > 3 and s[i].isalpha() and len(t[j]) > 3:
                result[s[i]][t[j]] += 1
    return result


def glossary(
    lexicon: dict[str, Counter[str]], pairs: Sequence[tuple[str, str]], rng: random.Random
) -> Glossary:
    """200 terms, with all that a word is linked to more than once as its inflected variants.

    Only words that the training pairs translate so in 98 of 100 sentences: a term is what has a
    fixed translation. The test sentences are not looked at.
    """
    terms = {}
    for word, counts in lexicon.items():
        variants = tuple(t for t, n in counts.most_common(8) if n >= 2 and t.isalpha())
        if counts.total() >= 5 and variants:
            terms[word] = variants
    seen, saved = Counter[str](), Counter[str]()
    for source, target in pairs:
        there = set(words(target.lower()))
        for word in set(words(source.lower())) & terms.keys():
            seen[word] += 1
            saved[word] += not there.isdisjoint(terms[word])
    fixed = sorted(word for word in terms if saved[word] >= 0.98 * seen[word])
    return Glossary({word: terms[word] for word in rng.sample(fixed, min(TERMS, len(fixed)))})


def bleu(outputs: Sequence[str], references: Sequence[str]) -> float:
    return round(metrics.bleu(outputs, references)[0], 2)


def of_text(run: Run, lines: Sequence[str], head: Head, rules: Rules) -> dict[str, Any]:
    outputs = through(run, [text_passage(line, rules) for line in lines], head)
    intact = [rules.count([a]) == rules.count([b]) for a, b in zip(lines, outputs, strict=True)]
    total = sum(rules.count([line]).total() for line in lines)
    return {"sentences": len(lines), "spans": total, "intact": sum(intact)}


def of_html(run: Run, fragments: Sequence[str], head: Head, rules: Rules) -> dict[str, Any]:
    outputs = through(run, [html_passage(html, rules) for html in fragments], head)
    valid = same = intact = 0
    for before, after in zip(fragments, outputs, strict=True):
        (_, own, texts), (fine, result, new) = parsed(before), parsed(after)
        valid += fine
        same += own == result
        intact += rules.count(texts) == rules.count(new)
    return {
        "fragments": len(fragments),
        "valid": valid,
        "all elements and attributes kept": same,
        "spans intact": intact,
        "spans": sum(rules.count(parsed(html)[2]).total() for html in fragments),
    }


def of_rules(run: Run, sources: list[str], references: list[str], head: Head) -> dict[str, Any]:
    """BLEU where numbers in words stand as digits on both sides: shown to the model, or hidden."""
    digits = {"two": "2", "three": "3", "four": "4", "deux": "2", "trois": "3", "quatre": "4"}

    def with_digits(line: str) -> str:
        return re.sub(r"\w+", lambda m: digits.get(m.group().lower(), m.group()), line)

    pairs = [(with_digits(s), with_digits(r)) for s, r in zip(sources, references, strict=True)]
    rules = Rules()
    pairs = [(s, r) for s, r in pairs if rules.count([s]) and rules.count([s]) == rules.count([r])]
    result: dict[str, Any] = {"sentences": len(pairs)}
    for name, tried in {
        "numbers shown": rules,
        "numbers hidden": Rules(hidden=HIDDEN + SHOWN, shown=()),
    }.items():
        outputs = through(run, [text_passage(s, tried) for s, _ in pairs], head)
        result[f"bleu, {name}"] = bleu(outputs, [r for _, r in pairs])
    plain = [str(a) for a in run.translate([s for s, _ in pairs])]
    result["bleu, unprotected"] = bleu(plain, [r for _, r in pairs])
    saved = [rules.count([a]) == rules.count([s]) for a, (s, _) in zip(plain, pairs, strict=True)]
    result["intact, unprotected"] = sum(saved)
    return result


def of_glossary(
    run: Run, sources: list[str], references: list[str], terms: Glossary
) -> dict[str, Any]:
    expected = [terms.variants(line) for line in sources]
    started = time.perf_counter()
    plain = [str(a) for a in run.translate(sources)]
    free = time.perf_counter() - started
    forced = [str(a) for a in AssistedRun(run, Assistance(terms)).translate(sources)]
    seconds = time.perf_counter() - started - free
    requested = sum(map(len, expected))

    def present(outputs: Sequence[str]) -> int:
        each = zip(outputs, expected, strict=True)
        return sum(holds(output, term) for output, some in each for term in some)

    return {
        "terms in glossary": len(terms.terms),
        "sentences": len(sources),
        "sentences with terms": sum(map(bool, expected)),
        "terms asked for": requested,
        "present without": present(plain),
        "present with": present(forced),
        "share with": round(present(forced) / requested, 4),
        "share in the references": round(present(references) / requested, 4),
        "bleu without": bleu(plain, references),
        "bleu with": bleu(forced, references),
        "seconds without": round(free, 1),
        "seconds with": round(seconds, 1),
    }


def spans_and_html(run: Run, pairs: list[tuple[str, str]], rng: random.Random) -> dict[str, Any]:
    """The parts that need a head to place things by."""
    head = chosen_head(run, pairs)
    sources, references = (list(side) for side in run.pairs("test"))
    lines = [strewn(sources[n % len(sources)], rng) for n in range(2000)]
    fragments = [fragment(rng.sample(sources, rng.randint(1, 2)), rng) for _ in range(500)]
    return {
        "head": {"layer": head.layer, "head": head.head},
        "text": of_text(run, lines, head, Rules()),
        "html": of_html(run, fragments, head, Rules()),
        "numbers": of_rules(run, sources, references, head),
    }


def terms(run: Run, pairs: list[tuple[str, str]], rng: random.Random) -> dict[str, Any]:
    """The part with a glossary."""
    known = glossary(learnt(pairs, linked(pairs)), pairs, rng)
    sources, references = (list(side) for side in run.pairs("test"))
    return {"glossary": of_glossary(run, sources, references, known)}


PARTS = {"spans": spans_and_html, "glossary": terms}


def main(
    folder: Annotated[Path, Argument(metavar="RUN")],
    part: Annotated[list[str] | None, harness.among(PARTS, "of the result; else all")] = None,
) -> None:
    torch.set_num_threads(1)
    run = load(folder)
    train = run.task.corpus("train")
    pairs = list(zip(train.sources[:8000], train.targets[:8000], strict=True))
    result = harness.previous("passages") if part else {}
    result |= {"command": harness.command(), "machine": harness.describe()}
    for name in part or PARTS:
        result |= PARTS[name](run, pairs, random.Random(1))
    harness.write("passages", result)
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    harness.run(main)
