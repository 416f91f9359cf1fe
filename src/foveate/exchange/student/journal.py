"""The journal of a teacher's answers: on disk before the next request, never asked for twice."""

import json
import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from foveate.data.corpus import Meter
from foveate.errors import UserError
from foveate.exchange.student.teachers import Replies, Reply, Teacher
from foveate.tasks.base import spread

SAMPLE = 20  # lines by which time and cost are judged


@dataclass
class Account:
    """The cost of paid answers, by characters of sources, or by the tokens that the teacher counts:

        spent = price · Σ amount / 10⁶ ≤ budget

    ``rate`` is the largest amount per character so far. Tokens that are not counted are characters.
    """

    price: float = 0.0
    per: str = "characters"
    budget: float = math.inf
    spent: float = 0.0
    rate: float = 1.0

    def add(self, replies: Replies) -> None:
        """Count answers that have arrived."""
        amount = characters = sum(map(len, replies))
        if self.per == "tokens":
            amount = sum(reply.tokens for reply in replies.values()) or characters
            self.rate = max(self.rate, amount / max(1, characters))
        self.spent += self.price * amount / 1e6

    def expected(self, lines: Sequence[str]) -> float:
        """Return what the answers to lines cost at most."""
        return self.price * self.rate * sum(map(len, lines)) / 1e6


class AnswerJournal:
    """The answers of a teacher to ``lines``, in a file of JSON lines that only grows.

    The first line names the teacher. A last line without its end, after a crash, is cut off. Raises
    `UserError` for the answers of another teacher, and for a line that is damaged.
    """

    def __init__(
        self, path: Path, teacher: Teacher, lines: Sequence[str], account: Account
    ) -> None:
        self.path, self.teacher, self.lines, self.account = path, teacher, lines, account
        self.distinct = list(dict.fromkeys(line for line in lines if line.strip()))
        self.replies: Replies = {}
        text = path.read_bytes() if path.exists() else b""
        whole = text.rfind(b"\n") + 1
        if whole < len(text):
            os.truncate(path, whole)
        for number, line in enumerate(text[:whole].split(b"\n")[:-1], 1):
            try:
                tree = json.loads(line)
                if number > 1:
                    self.replies |= {tree.pop("line"): Reply(**tree)}
                elif tree != {"teacher": teacher.name}:
                    raise UserError(f"{path} holds answers of another teacher: choose another OUT")
            except (json.JSONDecodeError, UnicodeError, KeyError, TypeError) as error:
                raise UserError(f"{path}:{number} is damaged ({error}): remove this line") from None
        if not whole:
            self._write([{"teacher": teacher.name}])
        if teacher.paid:
            account.add(self.replies)

    def _write(self, trees: Sequence[dict[str, object]]) -> None:
        with self.path.open("a", encoding="utf-8", newline="\n") as file:
            file.write("".join(json.dumps(tree, ensure_ascii=False) + "\n" for tree in trees))
            file.flush()
            os.fsync(file.fileno())

    def remaining(self) -> list[str]:
        """Return the distinct lines without an answer."""
        return [line for line in self.distinct if line not in self.replies]

    def answer(self) -> Replies:
        """Return the answers to all lines, after asking for those that remain."""
        with Meter(f"asking {self.path.stem}", len(self.distinct), "lines") as meter:
            self.ask(self.distinct, meter.add)
        return self.replies

    def ask(self, lines: Sequence[str], progress: Callable[[int], None] = lambda n: None) -> None:
        """Ask for the answers to distinct lines that are not in the journal.

        A model of ours answers whole batches again, so that its sums are the same after a crash.
        Raises `UserError` before the budget is exceeded.
        """
        teacher, account = self.teacher, self.account
        for start in range(0, len(lines), teacher.batch):
            batch = lines[start : start + teacher.batch]
            missing = [line for line in batch if line not in self.replies]
            if teacher.paid and account.spent + account.expected(missing) > account.budget:
                raise UserError(
                    f"--budget {account.budget:g} ends at {account.spent:.6f}, after "
                    f"{len(self.replies):,} answers, kept in {self.path}; raise it to resume"
                )
            if missing:
                for replies in teacher.translate(missing if teacher.paid else batch):
                    self.replies |= replies
                    if teacher.paid:  # a refusal costs nothing, and is asked for again
                        replies = {x: y for x, y in replies.items() if y.text is not None}
                        account.add(replies)
                    self._write([{"line": x} | asdict(reply) for x, reply in replies.items()])
            progress(len(batch))

    def seconds(self) -> float:
        """Return how long the remaining answers take, by a sample that is asked now.

        The answers of a paid teacher are kept. Raises `UserError` if it refuses all of them.
        """
        lines, began = self.remaining(), time.perf_counter()
        sample = [lines[n] for n in spread(len(lines), SAMPLE)]
        if self.teacher.paid:
            self.ask(sample)
            if sample and all(self.replies[line].text is None for line in sample):
                raise UserError(
                    f"{self.path}: the teacher refuses all of a sample: see its messages"
                )
        else:
            list(self.teacher.translate(sample))
        return (time.perf_counter() - began) * len(self.remaining()) / max(1, len(sample))
