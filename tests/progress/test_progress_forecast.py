import pytest

from bcnet.progress.forecast import Forecast, Planned

PLAN = [
    Planned("supernet", 100, "steps", work=12.0),
    Planned("prior", 1, "problem", kind="prior"),
    Planned("evolution", 40, "candidates", work=6.0, kind="scoring"),
    Planned("original", 50, "steps", work=6.0),
    Planned("searched", 50, "steps", work=3.0),
]


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def work(forecast: Forecast, clock: Clock, units: range, seconds_each: float) -> None:
    for done in units:
        clock.now += seconds_each
        forecast.advance(done)


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def forecast(clock):
    made = Forecast(clock)
    made.plan(PLAN)
    return made


def test_nothing_is_known_before_something_is_measured(forecast, clock):
    assert forecast.run_left is None
    forecast.begin("supernet", 100, "steps")
    assert (forecast.stage_left, forecast.run_left) == (None, None)
    work(forecast, clock, range(1, 2), 0.5)
    assert (forecast.stage_left, forecast.run_left) == (None, None)


def test_stages_to_come_go_by_the_work_and_the_speed_measured(forecast, clock):
    forecast.begin("supernet", 100, "steps")
    work(forecast, clock, range(1, 11), 1.0)  # 12 units of work a second
    assert forecast.stage_left == pytest.approx(90)
    assert forecast.run_left == pytest.approx(90 + 40 * 6 / 12 + 50 * 6 / 12 + 50 * 3 / 12)


def test_a_kind_goes_by_its_own_speed_once_measured(forecast, clock):
    forecast.begin("supernet", 100, "steps")
    work(forecast, clock, range(1, 101), 1.0)
    forecast.end()
    forecast.begin("evolution", 40, "candidates")
    assert forecast.run_left is None  # of the stage at hand nothing is known yet
    work(forecast, clock, range(1, 21), 0.25)
    assert forecast.run_left == pytest.approx(20 * 0.25 + (50 * 6 + 50 * 3) / 12)


def test_a_resumed_run_counts_neither_what_is_finished_nor_what_was_done_before(clock):
    forecast = Forecast(clock)
    forecast.plan([Planned("supernet", 100, "steps", work=12.0, finished=True), *PLAN[1:]])
    forecast.begin("original", 50, "steps")
    work(forecast, clock, range(31, 41), 2.0)  # resumed at step 30
    assert forecast.stage_left == pytest.approx(20)
    assert forecast.run_left == pytest.approx(20 + (40 * 6 + 50 * 3) / 3)


def test_the_speed_is_that_of_the_last_minutes(forecast, clock):
    forecast.begin("supernet", 10_000, "steps")
    work(forecast, clock, range(1, 1001), 1.0)
    work(forecast, clock, range(1001, 2001), 4.0)
    assert forecast.stage_left == pytest.approx(8000 * 4)


def test_a_stage_that_nobody_planned_is_forecast_alone(clock):
    forecast = Forecast(clock)
    forecast.begin("baseline", 10, "networks")
    work(forecast, clock, range(1, 6), 1.0)
    assert forecast.stage_left == pytest.approx(5)
    assert forecast.run_left is None
