"""Queues against the closed forms that they contain."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ridgeline.serving.queueing import exponential_tail_s, load_dependent_queue


@pytest.mark.parametrize("load", [0.1, 0.5, 0.9])
def test_one_server_is_mm1(load):
    q = load_dependent_queue(load, np.array([1.0]))
    assert q.present_mean == pytest.approx(load / (1 - load))
    assert q.wait_mean_s == pytest.approx(load / (1 - load))
    assert q.wait_frac == pytest.approx(load)
    assert q.idle_frac == pytest.approx(1 - load)
    assert q.wait_p95_s == pytest.approx(max(0.0, math.log(load / 0.05) / (1 - load)))


@pytest.mark.parametrize(("servers", "load"), [(2, 0.5), (4, 0.75), (10, 0.8)])
def test_many_servers_are_mmc(servers, load):
    """Service rates n, 2n ... are c independent servers: Erlang's C formula."""
    rate = load * servers
    offered = rate
    terms = [offered**k / math.factorial(k) for k in range(servers)]
    last = offered**servers / math.factorial(servers) / (1 - load)
    erlang_c = last / (sum(terms) + last)
    q = load_dependent_queue(rate, np.arange(1.0, servers + 1))
    assert q.wait_frac == pytest.approx(erlang_c)
    assert q.wait_mean_s == pytest.approx(erlang_c / (servers - rate))
    assert q.running_mean == pytest.approx(offered)


def test_processor_sharing_keeps_littles_law():
    """A constant total rate is one shared server: the mean number present is that of M/M/1, nobody waits below N."""
    q = load_dependent_queue(0.6, np.full(400, 1.0))
    assert q.present_mean == pytest.approx(0.6 / 0.4)
    assert q.wait_mean_s == pytest.approx(0.0, abs=1e-60)
    assert q.running_p95 >= q.running_mean


def test_tail_of_a_rare_wait_is_nothing():
    assert exponential_tail_s(0.05, 2.0) == 0.0
    assert exponential_tail_s(1.0, 2.0) == pytest.approx(math.log(20) / 2)
