"""All kinds of drawings, used to read JSON again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from foveate.draw.blocks import ModelDrawing
from foveate.draw.charts import BarsDrawing, LinesDrawing
from foveate.draw.film import FilmDrawing
from foveate.draw.forward import ForwardDrawing
from foveate.draw.interactive import InteractiveDrawing
from foveate.draw.lanes import LanesDrawing
from foveate.draw.maps import AttentionDrawing
from foveate.draw.page import PageGroup
from foveate.draw.pictures import PictureDrawing
from foveate.draw.sheets import SheetDrawing
from foveate.draw.stages import StepsDrawing
from foveate.draw.texts import TableDrawing, WordsDrawing

AnyDrawing = Annotated[
    AttentionDrawing | FilmDrawing | SheetDrawing | StepsDrawing | ForwardDrawing | LinesDrawing
    | BarsDrawing | WordsDrawing | LanesDrawing | PictureDrawing | ModelDrawing | TableDrawing
    | InteractiveDrawing,
    Field(discriminator="kind"),
]  # fmt: skip


class StoredGroup(PageGroup):
    """A group in a previously written page, with its drawings by their kinds."""

    drawings: Sequence[AnyDrawing]


def groups_of(page: str) -> list[StoredGroup]:
    """Return the groups of a page. Raises ``ValueError`` for drawings of another version."""
    parts = page.split('<script class="group" type="application/json">')[1:]
    return [StoredGroup.model_validate_json(part.partition("</script>")[0]) for part in parts]
