"""Full collections of a broker's process."""

import gc

import pytest

from barnabas.server import garbage


class Circle:
    def __init__(self):
        self.me = self


def circles():
    return sum(isinstance(thing, Circle) for thing in gc.get_objects())


@pytest.fixture
def short():
    with garbage.short_collections():
        yield
    gc.collect()


def test_what_has_survived_is_not_looked_at_again(short):
    kept = [Circle() for _ in range(100)]
    gc.collect()
    before = gc.get_freeze_count()
    assert circles() == 0  # they are out of the collector's sight
    del kept
    gc.collect()
    assert gc.get_freeze_count() <= before


def test_new_circles_are_freed(short):
    Circle()
    gc.collect()
    assert circles() == 0


def test_old_circles_are_freed_after_many_collections(monkeypatch):
    monkeypatch.setattr(garbage, "_SHORT_ONES", 3)
    with garbage.short_collections():
        kept = [Circle() for _ in range(10)]
        gc.collect()
        del kept
        for _ in range(3):
            gc.collect()
        gc.collect()  # looks at everything
        assert circles() == 0


def test_everything_is_as_before_when_it_is_left():
    with garbage.short_collections():
        pass
    assert gc.get_freeze_count() == 0
