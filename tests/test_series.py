"""Series from CSV: what is read, refused, filled; division in the order of time; dates; windows."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from foveate.data.catalogue import DataError
from foveate.data.scaling import Scaling
from foveate.data.series import SeriesData, calendar, divide, following, labels, read_table
from foveate.data.windows import Windows, starts
from laws.conftest import each
from tolerances import ROW, close

HEADER = "date,a,b"
ROWS = ["2020-01-01,1,10", "2020-01-02,2,20", "2020-01-03,3,30", "2020-01-04,4,40"]


def written(folder: Path, *lines: str) -> SeriesData:
    path = folder / "series.csv"
    path.write_text("\r\n".join(lines) + "\r\n")
    return SeriesData(path=str(path))


def dates(*texts: str) -> np.ndarray:
    return np.array(texts, dtype="M8[s]")


# ------------------------------------------------------------------------------ reading


def test_a_table_by_hand(tmp_path: Path) -> None:
    table = read_table(written(tmp_path, HEADER, *ROWS))
    assert table.names == ("a", "b")
    np.testing.assert_array_equal(table.values, [[1, 10], [2, 20], [3, 30], [4, 40]])
    assert labels(table.dates) == ["2020-01-01", "2020-01-02", "2020-01-03", "2020-01-04"]
    assert table.filled == {}


def test_quotes_marks_blank_lines_and_gzip(tmp_path: Path) -> None:
    path = tmp_path / "quoted.csv.gz"
    path.write_bytes(gzip.compress(b'\xef\xbb\xbf"Month","x, y"\n"1949-01",112\n\n"1949-02",118\n'))
    table = read_table(SeriesData(path=str(tmp_path / "quoted.csv")))
    assert table.names == ("x, y",)
    assert labels(table.dates) == ["1949-01", "1949-02"]


def test_columns_are_chosen_by_name(tmp_path: Path) -> None:
    data = written(tmp_path, "a,when,b", "1,2020-01-01,10", "2,2020-01-02,20")
    table = read_table(data.model_copy(update={"date": "when", "values": ("b",)}))
    np.testing.assert_array_equal(table.values, [[10], [20]])
    with pytest.raises(DataError, match=r"series.csv:1: no column 'c'; there are: a, when, b"):
        read_table(data.model_copy(update={"date": "when", "values": ("c",)}))


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("2020-01-03,x,1", r"series.csv:3: column 'a': 'x' is no number"),
        ("2020-01-03,1,inf", r"series.csv:3: column 'b': 'inf' is no number"),
        ("2020-13-03,1,1", r"series.csv:3: '2020-13-03' is no date; write 2016-07-31"),
        (",1,1", r"series.csv:3: '' is no date"),
        ("2019-01-03,1,1", r"series.csv:3: 2019-01-03 is not after the row before it; sort"),
        ("2020-01-03,1", r"series.csv:3: 2 cells; the header has 3"),
    ],
)
def test_a_bad_row_is_named(tmp_path: Path, row: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_table(written(tmp_path, HEADER, ROWS[0], row))


def test_nothing_to_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="has a header but no rows"):
        read_table(written(tmp_path, HEADER))
    with pytest.raises(DataError, match="names no column of values"):
        read_table(written(tmp_path, "date", "2020-01-01"))
    with pytest.raises(DataError, match="cannot be read after line 1: Compressed file ended"):
        (tmp_path / "damaged.csv.gz").write_bytes(gzip.compress(b"date,a\n" * 99)[:20])
        read_table(SeriesData(path=str(tmp_path / "damaged.csv.gz")))


def test_missing_values(tmp_path: Path) -> None:
    rows = ["2020-01-01,0,", "2020-01-02,,5", "2020-01-03,NA,6", "2020-01-04,3,nan"]
    data = written(tmp_path, HEADER, *rows)
    with pytest.raises(DataError, match=r"column 'b' has no value in row 1 .*4 are missing in all"):
        read_table(data)
    linear = read_table(data.model_copy(update={"missing": "interpolate"}))
    close(linear.values, [[0, 5], [1, 5], [2, 6], [3, 6]])
    assert linear.filled == {"a": 2, "b": 2}
    with pytest.raises(DataError, match="column 'b' has nothing to fill row 1 with"):
        read_table(data.model_copy(update={"missing": "previous"}))
    only = data.model_copy(update={"missing": "previous", "values": ("a",)})
    close(read_table(only).values, [[0], [0], [0], [3]])


# ------------------------------------------------------------------------------ time


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
    months = following(dates("1960-10", "1960-11", "1960-12"), 3)
    assert labels(months) == ["1961-01", "1961-02", "1961-03"]
    hours = following(dates("2018-06-26T18", "2018-06-26T19"), 2)
    assert labels(hours) == ["2018-06-26 20:00", "2018-06-26 21:00"]
    gap = following(dates("1988-02-27", "1988-02-28", "1988-03-01", "1988-03-02"), 1)
    assert labels(gap) == ["1988-03-03"]
    with pytest.raises(ValueError, match="at least two rows"):
        following(dates("2020-01-01"), 1)


def test_calendar_features() -> None:
    at = dates("2016-07-01T00", "2016-12-31T23")  # a Friday and a Saturday
    names = ("hour", "weekday", "day", "month", "year")
    first, last = calendar(at, names).astype(np.float64)
    close(first, [-0.5, 4 / 6 - 0.5, -0.5, 6 / 11 - 0.5, 1.6], terms=ROW)
    close(last, [0.5, 5 / 6 - 0.5, 0.5, 0.5, 1.6], terms=ROW)
    assert calendar(at, ()).shape == (2, 0)


# ------------------------------------------------------------------------------ scaling, windows


@each("scaling")
def test_scaling_is_undone(config: Scaling.Config) -> None:
    values = np.random.default_rng(0).normal(5, 3, (50, 2))
    values[:, 1] = 7  # a constant channel
    scaling = config.build()
    scaling.fit(values)
    close(scaling.leave(scaling.enter(values)), values)


def test_a_window_reads_what_comes_before_what_it_is_asked_for(tmp_path: Path) -> None:
    table = read_table(written(tmp_path, HEADER, *ROWS))
    scaled = table.values.astype(np.float32)
    windows = Windows(table, scaled, np.zeros((4, 0), np.float32), starts((2, 4), 2, 1), 2, 1)
    read, features, wanted = windows.take([0, 1])
    np.testing.assert_array_equal(read[:, :, 0], [[1, 2], [2, 3]])
    np.testing.assert_array_equal(wanted[:, :, 0], [[3], [4]])
    np.testing.assert_array_equal(wanted, windows.wanted())
    assert features.shape == (2, 3, 0)
    assert labels(windows.asked()) == ["2020-01-03", "2020-01-04"]


def test_etth1_has_the_windows_of_the_papers() -> None:
    assert len(starts((0, 8640), 336, 96)) == 8209
    assert len(starts((11520, 14400), 336, 96)) == 2785
    assert len(starts((0, 10), 8, 3)) == 0
