"""Whether a step fits follows from the peaks of several batches."""

from __future__ import annotations

from dataclasses import replace

from harness.advice.peaks import Fit, Line, Peak

#: 100 bytes, and 10 for each row.
PEAKS = tuple(Peak(rows, 100 + 10 * rows) for rows in (8, 16, 32, 64))


def fit(memory: int | None, *, devices: int = 1, measured: bool = True, peaks: tuple[Peak, ...] = PEAKS) -> Fit:
    return Fit("m.py:build", "a training step", 64, devices, measured, peaks, 60, memory)


def test_two_batches_give_a_line_and_a_third_one_its_error() -> None:
    line = Line.through(PEAKS)
    assert (line.fixed_bytes, line.row_bytes, line.error) == (100, 10, 0)
    assert Line.through(PEAKS[:1]).at(99) == 180
    bent = Line.through([Peak(8, 200), Peak(16, 260), Peak(32, 420)])
    assert (bent.row_bytes, round(bent.error, 6)) == (10, 0.1)
    falling = Line.through([Peak(8, 209), Peak(16, 190)])
    assert falling.row_bytes == 0
    assert round(falling.noise, 6) == 0.1


def test_the_verdict_keeps_away_from_the_edge_and_further_where_the_peak_is_predicted() -> None:
    assert [fit(memory).verdict for memory in (800, 740, 700, None)] == [
        "fits",
        "too close to tell",
        "does not fit",
        "",
    ]
    predicted = [fit(memory, measured=False, peaks=PEAKS[:3]).verdict for memory in (930, 920, 660, 650)]
    assert predicted == ["fits", "too close to tell", "too close to tell", "does not fit"]
    bent = (Peak(8, 240), *PEAKS[1:3])
    assert fit(930, measured=False, peaks=bent).verdict == "too close to tell"


def test_what_would_make_it_fit_fits() -> None:
    small = fit(449)
    assert small.most_rows == 30
    assert dict(small.remedies()) == {
        "batch": "at most 30 rows a device",
        "micro-batches": "at least 3, of 22 rows, whose gradients are added",
        "devices": "at least 3 that share the batch, with 22 rows each",
    }
    assert not [*fit(900).remedies()]
    assert [word for word, _ in fit(90).remedies()] == ["a pipeline"]
    assert not [*fit(100).remedies()]  # within the spread, none is sure to help
    shared = fit(449, devices=3, peaks=(Peak(5, 150), Peak(11, 210), Peak(22, 320)))
    assert (shared.rows_of_a_device, shared.verdict) == (22, "fits")


def test_fewer_rows_are_no_remedy_where_they_take_as_much() -> None:
    bent = fit(160, peaks=(Peak(8, 160), Peak(16, 165), Peak(32, 170), Peak(64, 300)))
    assert bent.line.at(16) < 160
    assert bent.most_rows == 0
    assert replace(bent, memory_bytes=192).most_rows == 32
    assert 32 < replace(bent, memory_bytes=250).most_rows < 64
    assert replace(bent, memory_bytes=340).most_rows == 64


def test_a_model_that_takes_more_to_build_than_a_step_does_not_fit_where_a_step_does() -> None:
    def to_build(takes: int) -> Fit:
        return fit(800, peaks=tuple(replace(each, building_bytes=takes) for each in fit(800).peaks))

    built = to_build(2000)
    assert (built.step_bytes, built.verdict) == (740, "does not fit")
    assert [word for word, _ in built.remedies()] == ["a pipeline"]
    assert replace(built, memory_bytes=2200).verdict == "fits"
    close = replace(built, memory_bytes=2050)
    assert (close.verdict, [*close.remedies()]) == ("too close to tell", [])
    assert to_build(600).interval == fit(800).interval


def test_a_model_that_is_built_with_its_batch_takes_less_with_fewer_rows() -> None:
    built = fit(449, peaks=tuple(replace(each, building_bytes=each.size_bytes + 40) for each in fit(449).peaks))
    assert 0 < built.most_rows < fit(449).most_rows
    assert [word for word, _ in built.remedies()] == ["batch", "micro-batches", "devices"]
