"""Series from CSV: what is read, refused, filled; division in the order of time; dates; windows."""

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foveate.data.catalogue import DataError
from foveate.data.notation import forms_of, parse_date
from foveate.data.series import (
    Scaling,
    SeriesData,
    SeriesTable,
    Windows,
    calendar,
    date_column,
    divide,
    following,
    gaps_of,
    labels,
    read_table,
    starts,
    usual_step,
)
from laws.conftest import each
from tolerances import ROW, close

HEADER = "date,a,b"
ROWS = ["2020-01-01,1,10", "2020-01-02,2,20", "2020-01-03,3,30", "2020-01-04,4,40"]


def written(folder: Path, *lines: str) -> SeriesData:
    path = folder / "series.csv"
    path.write_text("\r\n".join(lines) + "\r\n")
    return SeriesData(path=str(path))


def table_of(folder: Path, *lines: str, **options: Any) -> SeriesTable:
    return read_table(written(folder, *lines).model_copy(update=options))


def refused(match: str, folder: Path, *lines: str, **options: Any) -> None:
    with pytest.raises(DataError, match=match):
        table_of(folder, *lines, **options)


def dates(*texts: str) -> np.ndarray:
    return np.array(texts, dtype="M8[s]")


def test_a_table_by_hand(tmp_path: Path) -> None:
    table = table_of(tmp_path, HEADER, *ROWS)
    assert table.names == ("a", "b") and table.filled == {}
    np.testing.assert_array_equal(table.values, [[1, 10], [2, 20], [3, 30], [4, 40]])
    assert labels(table.dates) == [f"2020-01-0{n}" for n in (1, 2, 3, 4)]
    path = tmp_path / "quoted.csv.gz"  # with quotes, a mark of bytes, blank lines
    path.write_bytes(gzip.compress(b'\xef\xbb\xbf"Month","x, y"\n"1949-01",112\n\n"1949-02",118\n'))
    table = read_table(SeriesData(path=str(tmp_path / "quoted.csv")))
    assert table.names == ("x, y",) and labels(table.dates) == ["1949-01", "1949-02"]
    lines = ["a,when,b", "1,2020-01-01,10", "2,2020-01-02,20"]
    table = table_of(tmp_path, *lines, date="when", values=("b",))
    np.testing.assert_array_equal(table.values, [[10], [20]])
    message = r"csv:1: no column 'c'; the columns are: a, when, b"
    refused(message, tmp_path, *lines, date="when", values=("c",))


BAD_ROWS = {
    "2020-01-03,x,1": r"series.csv:3: column 'a': 'x' is not a number",
    "2020-01-03,1,inf": r"series.csv:3: column 'b': 'inf' is not a number",
    "2020-13-03,1,1": r"series.csv:3: '2020-13-03' is not a date; write 2016-07-31",
    ",1,1": r"series.csv:3: '' is not a date",
    "2019-01-03,1,1": r"series.csv:3: 2019-01-03 is not after the row before it; sort",
    "2020-01-03,1": r"series.csv:3: 2 cells; the header has 3",
}


def test_what_is_wrong_in_a_table_is_named(tmp_path: Path) -> None:
    for row, message in BAD_ROWS.items():
        refused(message, tmp_path, HEADER, ROWS[0], row)
    refused("has a header but no rows", tmp_path, HEADER)
    refused("no column of values", tmp_path, "date", "2020-01-01")
    refused(r"csv:1: the header has 'load' twice", tmp_path, "date,load,load", "2020-01-01,1,2")
    refused("csv:1: the header contains the date 2020-01-01", tmp_path, "2020-01-01,5", ROWS[0])
    (tmp_path / "damaged.csv.gz").write_bytes(gzip.compress(b"date,a\n" * 99)[:20])
    with pytest.raises(DataError, match="cannot be read after line 1: Compressed file ended"):
        read_table(SeriesData(path=str(tmp_path / "damaged.csv.gz")))


def test_missing_values(tmp_path: Path) -> None:
    lines = [HEADER, "2020-01-01,0,", "2020-01-02,,5", "2020-01-03,NA,6", "2020-01-04,3,nan"]
    refused(r"column 'b' has no value in row 1 .*4 are missing in all", tmp_path, *lines)
    linear = table_of(tmp_path, *lines, missing="interpolate")
    close(linear.values, [[0, 5], [1, 5], [2, 6], [3, 6]])
    assert linear.filled == {"a": 2, "b": 2}
    refused("column 'b' has nothing to fill row 1 with", tmp_path, *lines, missing="previous")
    only = table_of(tmp_path, *lines, missing="previous", values=("a",))
    close(only.values, [[0], [0], [0], [3]])


@pytest.mark.parametrize(
    ("lines", "named"),
    [
        (["date;a;b", "2020-01-01;1,5;-2", "2020-01-02;2,25;3e2"], {}),
        (["date\ta\tb", "2020-01-01\t1.5\t-2", "2020-01-02\t2.25\t3e2"], {}),
        (["date,a,b", '2020-01-01,"1,5",-2', '2020-01-02,"2,25","3e2"'], {"decimal": ","}),
        (["date;a,b", "2020-01-01;1,5"], {"delimiter": ";", "decimal": ","}),
    ],
)
def test_delimiter_and_decimal_comma(tmp_path, lines: list[str], named: dict[str, str]) -> None:
    whole = [[1.5, -2], [2.25, 300]] if len(lines) > 2 else [[1.5]]
    np.testing.assert_array_equal(table_of(tmp_path, *lines, **named).values, whole)


def test_a_decimal_mark_is_that_of_all_cells_however_late(tmp_path: Path) -> None:
    many = (f"{2000 + year};{year}" for year in range(150))
    lines = ["year;a", *many, "2150;1,5", "2151;1.234,5"]
    assert table_of(tmp_path, *lines).values[-2:, 0].tolist() == [1.5, 1234.5]
    message = r"series.csv:152: .*'1,5'.* task.series.decimal = \",\""
    refused(message, tmp_path, *lines, decimal=".")


# one number as tables write it, alone in a column of other numbers of that writing
WRITTEN = {
    "1018": 1018, "1,018;0,981": 1.018, "1.018;0.981": 1.018, "1.018;1.981": 1.018,
    "1,018;1,5": 1.018, "1,018;1.5": 1018, "1.234,5": 1234.5, "1,234.5": 1234.5,
    "1,234,567": 1234567, "1.234.567": 1234567, "1 234": 1234, "1\u202f234,5": 1234.5,
    "1'234.5": 1234.5, "-1,018;7,25": -1.018, "\u22125": -5, "1e3": 1000, "1,5e3": 1500,
    ".5": 0.5, ",5;1,5": 0.5,
}  # fmt: skip
TWO_MEANINGS = {
    "1,018": "1,018.*thousands.*decimals", "1,018;981": "'1,018' in line 2.*task.series.decimal",
    "1.018;981": "'1.018'", "1,5;1.5": "'1,5' in line 2 and '1.5' in line 3|'1.5'.*'1,5'",
    "1,018;1.018": "1,018.*1.018", "1,020;981;1,234": "'1,020'", "1,018;1234": "'1,018'",
}  # fmt: skip
NO_NUMBERS = ["1_000", "1,23,4", "1,2345,6", "(5)", "5 apples", "--5", "0x10", "1.2.3", ",", "+"]
NO_NUMBERS += ["1e999", "$5", "12 %", "٣٫٥"]


@pytest.mark.parametrize("delimiter", [";", "\t", "|", ","])
@pytest.mark.parametrize("cells", [*WRITTEN, *TWO_MEANINGS, *NO_NUMBERS])
def test_a_number_has_one_meaning_or_is_refused_with_both(tmp_path, cells, delimiter) -> None:
    rows = [f'2020-01-0{n}{delimiter}"{cell}"' for n, cell in enumerate(cells.split(";"), 1)]
    lines = [f"date{delimiter}a", *rows]
    if cells in WRITTEN:
        assert table_of(tmp_path, *lines).values[0, 0] == WRITTEN[cells]
    else:
        refused(TWO_MEANINGS.get(cells, "is not a number; write it"), tmp_path, *lines)


DATES_WRITTEN = {
    "2020-03-04": None, "2020-03-04T05:06:07": None, "2020-03-04 24:00": None,
    "2020-03-04 05:06+01:00": None, "2020-03-04T05:06Z": None, "1583298367": "unix",
    "1583298367000": "unix_ms", "20200304": "%Y%m%d", "Mar 04, 2020": "%b %d, %Y",
    "04 March 2020": "%d %B %Y", "25/03/2020": "%d/%m/%Y",
    "3/25/2020 05:06 PM": "%m/%d/%Y %I:%M %p",
    "25.03.2020": "%d.%m.%Y", "2020/03/04 05:06": "%Y/%m/%d %H:%M",
}  # fmt: skip


NO_DATES = ["now", "today", "20200304", "1583298367", "NaT", "-5", "2020-3-4"]  # to NumPy they are


@pytest.mark.parametrize("text", [*DATES_WRITTEN, *NO_DATES])
def test_the_form_of_dates_is_found_and_read(text: str) -> None:
    if text in DATES_WRITTEN:
        assert forms_of([text], "date") == [DATES_WRITTEN[text]]
        assert str(parse_date(text, DATES_WRITTEN[text])).startswith("2020-03-")
    if text in NO_DATES:
        with pytest.raises(DataError, match="is not a date"):
            parse_date(text)


TABLES = {  # of `foveate new auto`: what is found, or what is said that the dates lack
    "date,a\n{d} 01:00,1\n{d} 02:00,2\n": ("date", None),
    "a,date\n1,03/04/2020\n2,03/05/2020\n": "as %d/%m/%Y and as %m/%d/%Y",
    "a,date\n1,03/04/2020\n2,13/04/2020\n": ("date", "%d/%m/%Y"),
    "a,date\n1,03/04/20\n2,03/05/20\n": "%d/%m/%y and as %m/%d/%y",
    "date,a\n2020-01-02,1\n2020-01-01,2\n": "from the newest to the oldest",
    "date,a\n2020-01-02,1\n2020-01-01,2\n2020-01-03,3\n": "not in the order of time",
    "Date;Time;a\n16/12/2006;00:00;1\n16/12/2006;00:01;2\n": "two columns, 'Date' and 'Time'",
    "date,shop,a\n2020-01-01,1,5\n2020-01-01,2,6\n": "occur several times",
    "quarter,a\n2020Q1,1\n2020Q2,2\n": "'2020Q1', whose form is unknown",
    "year,a\n1949,1\n1950,2\n": ("year", None),
    "id,a\n1949,1\n1950,2\n": None,
    "date,a\n44927,1\n44928,2\n": "'44927', whose form is unknown",
    "text,label\nhello,1\nyou,2\n": None,
    "date,$\n2020-01-01,$5\n2020-01-02,$6\n": ("date", None),
}


@pytest.mark.parametrize("text", TABLES)
def test_the_column_of_dates_is_found_or_what_it_lacks_is_said(tmp_path: Path, text: str) -> None:
    path, expected = tmp_path / "a.csv", TABLES[text]
    path.write_text(text.replace("{d}", "2020-01-01"))
    if isinstance(expected, str):
        with pytest.raises(DataError, match=expected):
            date_column(path)
    else:
        assert date_column(path) == expected


def test_a_doubled_hour_is_named_and_read_as_is_said(tmp_path: Path) -> None:
    times = ("00:00", "01:30", "02:00", "01:30", "02:00", "03:00")
    lines = ["date,a", *(f"2023-10-29 {t},{n}" for n, t in enumerate(times))]
    refused(r"csv:5: 2023-10-29 01:30 is already in line 3.*repeated", tmp_path, *lines)
    for how, values in {"first": [0, 1, 2, 5], "last": [0, 3, 4, 5], "mean": [0, 2, 3, 5]}.items():
        table = table_of(tmp_path, *lines, repeated=how, gaps="ignore")
        assert table.values[:, 0].tolist() == values
    unsorted = ["date,a", "2023-10-29,1", "2023-10-28,1", "2023-10-28,1"]
    refused(r"csv:3: 2023-10-28 is not after", tmp_path, *unsorted, repeated="mean")


def test_offsets_become_utc_and_are_said(tmp_path: Path) -> None:
    rows = [f"2023-10-29 02:00{offset},1" for offset in ("+02:00", "+01:00", "Z")]
    table = table_of(tmp_path, "date,a", *rows)
    assert labels(table.dates) == [f"2023-10-29 0{n}:00" for n in range(3)]
    assert table.utc
    message = r"csv:5: .*one has an offset of UTC, the other has none"
    refused(message, tmp_path, "date,a", *rows, "2023-10-29 03:00,1")


def every(first: str, last: str, step: str = "D") -> np.ndarray:
    return np.arange(first, last, dtype=f"M8[{step}]").astype("M8[s]")


def without(dates: np.ndarray, first: str, last: str) -> np.ndarray:
    return dates[(dates < np.datetime64(first)) | (dates >= np.datetime64(last))]


HOURS, DAYS = every("2020-01-01", "2020-03-01", "h"), every("1981-01-01", "1991-01-01")
WORKING = DAYS[np.is_busday(DAYS.astype("M8[D]"))]
OPEN = HOURS[(HOURS - HOURS.astype("M8[D]")).astype("m8[h]").astype(int) % 24 // 8 == 1]
LEAP = [np.datetime64(f"{year}-{day}") for year in (1984, 1988) for day in ("02-29", "12-31")]
REGULAR = {
    "hours": HOURS,
    "days": DAYS,
    "months": every("1749-01", "1760-01", "M"),
    "ends of months": every("1749-02", "1760-01", "M") - np.timedelta64(1, "D"),
    "quarters": every("1990-01", "2000-01", "M")[::3],
    "years": every("1900", "1950", "Y"),
    "every ten minutes": every("2020-01-01", "2020-01-04", "m")[::10],
    "working days": WORKING,
    "working days without a holiday week": without(WORKING, "1985-10-01", "1985-10-08"),
    "opening hours": OPEN,
    "without 29 February": DAYS[~np.isin(DAYS, LEAP[::2])],
    "years of 365 days": DAYS[~np.isin(DAYS, LEAP[1::2])],
    "events": np.cumsum(np.random.default_rng(0).exponential(5000, 99)).astype("M8[s]"),
    "clock that jitters": HOURS + np.random.default_rng(0).integers(0, 99, len(HOURS)),
    "two rows": dates("2020-01-01", "2020-06-01"),
}


@pytest.mark.parametrize(
    ("name", "first", "last"),
    [
        *((name, None, None) for name in REGULAR),  # a calendar is no gap
        ("hours", "2020-02-03T05", "2020-02-05T17"),
        ("hours", "2020-02-03T05", "2020-02-03T06"),
        ("days", "1990-02-01", "1990-02-03"),
        ("months", "1750-02", "1750-03"),
        ("quarters", "1995-01", "1995-02"),
        ("years", "1920", "1921"),
        ("working days", "1985-10-01", "1985-11-01"),
        ("opening hours", "2020-02-03T10", "2020-02-03T12"),
        ("every ten minutes", "2020-01-02T10:00", "2020-01-02T10:10"),
        ("clock that jitters", "2020-02-03T05", "2020-02-05T17"),
    ],
)
def test_missing_rows_are_a_gap(name: str, first: str | None, last: str | None) -> None:
    saved = without(REGULAR[name], first, last) if first and last else REGULAR[name]
    gaps = [int(np.searchsorted(saved, np.datetime64(last)))] if last else []
    assert gaps_of(saved).tolist() == gaps


def test_a_gap_is_refused_by_name_or_kept(tmp_path: Path) -> None:
    days = [f"2020-01-{day:02},{day},0" for day in range(1, 32) if day not in (9, 10)]
    message = r"csv:10: rows are missing between 2020-01-08 and 2020-01-11; .* 1 day "
    message += r"\(gaps in all: 1\); add .* task.series.gaps = \"split\""
    refused(message, tmp_path, HEADER, *days)
    for how, gaps in {"split": [8], "ignore": []}.items():
        assert table_of(tmp_path, HEADER, *days, gaps=how).gaps.tolist() == gaps


def test_no_window_spans_a_gap() -> None:
    assert starts((0, 10), 2, 1, np.array([4])).tolist() == [0, 1, 4, 5, 6, 7]
    assert starts((6, 10), 2, 1, np.array([4, 5])).tolist() == [5, 6, 7]
    assert starts((0, 3), 2, 1, np.array([3])).tolist() == [0]
    assert len(starts((0, 8640), 336, 96)) == 8209, "those of ETTh1 in the papers"
    assert len(starts((11520, 14400), 336, 96)) == 2785
    assert len(starts((0, 10), 8, 3)) == 0


@pytest.mark.parametrize(
    "name", ["airline-passengers", "monthly-sunspots", "daily-min-temperatures", "ETTh1"]
)
def test_real_calendars_have_no_gaps(data_folder: Path, name: str) -> None:
    steps = {"ETTh1": "1 hour", "daily-min-temperatures": "1 day"}
    table = read_table(SeriesData(path=str(data_folder / f"time-series/{name}.csv")))
    assert (len(table.gaps), usual_step(table.dates)) == (0, steps.get(name, "1 month"))


def test_division_in_the_order_of_time() -> None:
    rows = SeriesData(path="x", rows=(8640, 2880, 2880))
    parts = {"train": (0, 8640), "valid": (8640, 11520), "test": (11520, 14400)}
    assert divide(17420, rows) == parts
    assert divide(10, SeriesData(path="x"))["test"] == (8, 10)
    with pytest.raises(DataError, match=r"asks for 14,400 rows; x has 100"):
        divide(100, rows)
    with pytest.raises(DataError, match="no row is left for training"):
        divide(1, SeriesData(path="x"))


def test_the_dates_that_follow() -> None:
    for rows, after in (
        ("1960-10 1960-11 1960-12", ["1961-01", "1961-02", "1961-03"]),
        ("2018-06-26T18 2018-06-26T19", ["2018-06-26 20:00", "2018-06-26 21:00"]),
        ("1988-02-27 1988-02-28 1988-03-01 1988-03-02", ["1988-03-03"]),
        ("2019-10-31 2019-11-30 2019-12-31", ["2020-01-31", "2020-02-29", "2020-03-31"]),
        ("2019-03-31 2019-06-30 2019-09-30", ["2019-12-31", "2020-03-31"]),
    ):
        assert labels(following(dates(*rows.split()), len(after))) == after
    working = np.busday_offset("2024-01-01", np.arange(15)).astype("M8[s]")  # to Friday the 19th
    assert labels(following(working, 2)) == ["2024-01-22", "2024-01-23"]
    assert labels(following(working[:4], 2)) == ["2024-01-05", "2024-01-06"]  # too few to tell
    with pytest.raises(ValueError, match="at least two rows"):
        following(dates("2020-01-01"), 1)


def test_calendar_features() -> None:
    at = dates("2016-07-01T00", "2016-12-31T23")  # a Friday and a Saturday
    names = ("hour", "weekday", "day", "month", "year")
    first, last = calendar(at, names).astype(np.float64)
    close(first, [-0.5, 4 / 6 - 0.5, -0.5, 6 / 11 - 0.5, 1.6], terms=ROW)
    close(last, [0.5, 5 / 6 - 0.5, 0.5, 0.5, 1.6], terms=ROW)
    assert calendar(at, ()).shape == (2, 0)


@each("scaling")
def test_scaling_is_undone(config: Scaling.Config) -> None:
    values = np.random.default_rng(0).normal(5, 3, (50, 2))
    values[:, 1] = 7  # a constant channel
    scaling = config.build()
    scaling.fit(values)
    close(scaling.leave(scaling.enter(values)), values)


def test_a_window_reads_what_comes_before_what_it_is_asked_for(tmp_path: Path) -> None:
    table = table_of(tmp_path, HEADER, *ROWS)
    scaled = table.values.astype(np.float32)
    windows = Windows(table, scaled, np.zeros((4, 0), np.float32), starts((2, 4), 2, 1), 2, 1)
    read, features, expected = windows.take([0, 1])
    np.testing.assert_array_equal(read[:, :, 0], [[1, 2], [2, 3]])
    np.testing.assert_array_equal(expected[:, :, 0], [[3], [4]])
    np.testing.assert_array_equal(expected, windows.targets())
    assert features.shape == (2, 3, 0)
    assert labels(windows.first_dates()) == ["2020-01-03", "2020-01-04"]
