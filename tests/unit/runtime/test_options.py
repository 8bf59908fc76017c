from __future__ import annotations

import os
import pickle
import threading
from datetime import timedelta

import pytest

from kartothek_cube.core.runtime.options import Options, current_options, options, use_options
from kartothek_cube.errors import InvalidInput, InvalidType


def test_defaults():
    defaults = current_options()
    assert defaults == Options(
        None, 256 * 2**20, 100, timedelta(seconds=5), True, timedelta(days=1), timedelta(days=7), False
    )
    assert defaults.thread_count == min(os.cpu_count(), 8)


def test_blocks_nest_and_change_only_what_they_name():
    with options(threads=2, commit_retries=3) as outer:
        assert outer == current_options()
        with options(threads=1):
            assert (current_options().threads, current_options().commit_retries) == (1, 3)
        assert current_options().threads == 2
    assert current_options() == Options()


def test_block_ends_with_an_error():
    with pytest.raises(KeyError), options(threads=2):
        raise KeyError
    assert current_options() == Options()


def test_value_for_one_call_is_laid_over_the_block():
    value = options(threads=2)
    with options(commit_retries=3, threads=5):
        assert (current_options(value).threads, current_options(value).commit_retries) == (2, 3)
        assert current_options(None).threads == 5
        with use_options(value) as inside:
            assert inside == current_options()
            assert inside.threads == 2
        assert current_options().threads == 5
    assert current_options(Options(threads=7)) == Options(threads=7)


def test_value_can_be_used_again_and_inside_itself():
    value = options(threads=2)
    with value, value:
        assert current_options().threads == 2
    with value:
        assert current_options().threads == 2
    assert current_options() == Options()


def test_block_does_not_reach_other_threads():
    seen = []
    with options(threads=2):
        thread = threading.Thread(target=lambda: seen.append(current_options()))
        thread.start()
        thread.join()
    assert seen == [Options()]


def test_value_travels():
    assert pickle.loads(pickle.dumps(options(grace=timedelta(0)))) == options(grace=timedelta(0))


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("threads", 0, InvalidInput),
        ("threads", 1.5, InvalidType),
        ("threads", True, InvalidType),
        ("bytes_in_flight", 0, InvalidInput),
        ("bytes_in_flight", "1 MiB", InvalidType),
        ("commit_retries", -1, InvalidInput),
        ("commit_retries", None, InvalidType),
        ("require_atomic", 1, InvalidType),
        ("grace", 60, InvalidType),
        ("grace", timedelta(days=-1), InvalidInput),
        ("retain", None, InvalidType),
        ("progress", "bar", InvalidType),
        ("thread", 1, InvalidInput),
    ],
)
def test_wrong_option_is_refused_at_once_and_named(name, value, error):
    with pytest.raises(error, match=name):
        options(**{name: value})


def test_argument_of_another_type_is_refused():
    with pytest.raises(InvalidType, match="options="):
        current_options({"threads": 2})
