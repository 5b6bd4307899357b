"""An event clock that knows no machine learning: time, events, stations with queues, pools and shared rates."""

from ridgeline.des.clock import Clock, Event
from ridgeline.des.stations import Pool, SharedRate, Station, Store
from ridgeline.des.tally import Tally

__all__ = ["Clock", "Event", "Pool", "SharedRate", "Station", "Store", "Tally"]
