"""`workload.pipeline`: stages and the glue between them as steps on units, with the facts that their times rest on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ridgeline.catalog import Catalog
from ridgeline.core import FrozenMap, Note
from ridgeline.errors import ScenarioError
from ridgeline.scenario.pipeline_models import ModelTimes
from ridgeline.scenario.schema import PipelineFile, StageFile
from ridgeline.simulation.pipeline import Kind, Pipeline, PipeStage, PipeStep
from ridgeline.specs import System

# Bytes of a pixel by definition of the format: 4:2:0 planes, three bytes, three floats.
PIXEL_BYTES = {"nv12": 1.5, "rgb": 3.0, "fp32": 12.0}
_CPU, _LINK, _ACCELERATOR, _VIDEO, _HOST, _DEVICE = (
    "cpu",
    "link",
    "accelerator",
    "video",
    "host memory",
    "device memory",
)
MODELS = "times of models"  # in `changed`: a factor on all of them
_ANSWER_BYTES = 4096.0  # what a model hands on where nothing is said
_PAIR = 2  # workers of a stage, so that one brings the next input while the other works
_REFERENCES = 3.0  # a decoded frame is written, and two frames that it refers to are read


@dataclass(frozen=True, slots=True, kw_only=True)
class Data:
    """What a stage hands on: pixels in a format, or so many bytes; and in whose memory it lies."""

    place: str
    bytes: float
    form: str = ""
    width: int = 0
    height: int = 0

    @property
    def pixels(self) -> float:
        """Pixels of a frame (0: it is none)."""
        return float(self.width * self.height)

    def as_form(self, form: str) -> Data:
        """The same frame in another format."""
        return Data(
            place=self.place, bytes=self.pixels * PIXEL_BYTES[form], form=form, width=self.width, height=self.height
        )

    def at(self, place: str) -> Data:
        """The same in another memory."""
        return Data(place=place, bytes=self.bytes, form=self.form, width=self.width, height=self.height)


@dataclass(frozen=True, slots=True)
class Seat:
    """Where a stage works: a unit, the memory that it reads and writes, and the system that it is part of."""

    unit: str
    place: str
    system: System

    @property
    def on_core(self) -> bool:
        """Whether it is a core of the host."""
        return self.unit == _CPU


@dataclass(frozen=True, slots=True)
class Job:
    """A stage with its place in the file and its seat."""

    index: int
    stage: StageFile
    seat: Seat


@dataclass(slots=True)
class PipelineBuilder:
    """Turns the file into a pipeline. `others`: systems that stages name themselves. `changed`: other values of facts,
    and a factor on `MODELS`, for ranges."""

    file: PipelineFile
    system: System
    others: Mapping[str, System]
    catalog: Catalog
    spot: Callable[..., str]
    models: ModelTimes
    changed: Mapping[str, float] = field(default_factory=dict)
    notes: list[Note] = field(default_factory=list)

    def build(self) -> Pipeline:
        """The pipeline of the file; raises `ScenarioError` and `MissingFact` with what does not fit."""
        made: list[PipeStage] = []
        data: dict[str, Data] = {}
        units = {_CPU: self._cores()}
        memories = {_HOST: self._host_bandwidth()}
        for index, stage in enumerate(self.file.stages):
            after = tuple(stage.after) if stage.after is not None else ((made[-1].name,) if made else ())
            seat = self.seat(stage)
            steps, out = self._stage(index, stage, seat, [data[name] for name in after])
            for step in steps:
                engines = self.file.video_engines if step.unit.startswith(_VIDEO) else 1
                units.setdefault(step.unit, engines)
                if step.memory and step.memory not in memories:
                    chip = self._owner(step.memory).chip
                    memories[step.memory] = chip.need(
                        "memory_bandwidth_bytes_per_s", "passes over pixels on the device"
                    )
            made.append(
                PipeStage(
                    name=stage.name,
                    steps=tuple(steps),
                    after=after,
                    workers_count=stage.workers or min(self._cores(), max(_PAIR, self.file.streams)),
                    batch_count=stage.batch,
                )
            )
            data[stage.name] = out
        return Pipeline(
            stages=tuple(made),
            units=FrozenMap(units),
            memories=FrozenMap(memories),
            streams_count=self.file.streams,
            rate_per_s=self.file.rate,
            buffers_count=self.file.buffers,
            queue_count=self.file.queue,
        )

    @property
    def shared(self) -> bool:
        """Whether host and accelerator read the same memory: as the file says, else where the chip has no host link."""
        return self._shares(self.system)

    def _shares(self, system: System) -> bool:
        if self.file.shared_memory is not None and system.id == self.system.id:
            return self.file.shared_memory
        return not system.chip.host_link

    def fact(self, name: str) -> float:
        """The value of a fact on pipelines (SI)."""
        fact_id = f"pipelines.{name}"
        if fact_id in self.changed:
            return self.changed[fact_id]
        value = self.catalog.fact(fact_id).value
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise ScenarioError(f"{fact_id}: not a number")
        return float(value)

    def _cores(self) -> int:
        return self.file.cores or int(self.fact("host_cores"))

    def _host_bandwidth(self) -> float:
        if self.shared:
            return self.system.chip.need("memory_bandwidth_bytes_per_s", "memory that host and accelerator share")
        return self.system.host.memory_bandwidth_bytes_per_s or self.fact("host_memory_bandwidth")

    def seat(self, stage: StageFile) -> Seat:
        """Where the stage works."""
        unit = stage.on or {"decode": _VIDEO, "model": _ACCELERATOR}.get(stage.kind, _CPU)
        if unit == _CPU:
            return Seat(_CPU, _HOST, self.system)
        system = self.others[stage.system] if stage.system is not None else self.system
        place = _HOST if self._shares(system) else self._named(_DEVICE, system)
        return Seat(self._named(unit, system), place, system)

    def _named(self, name: str, system: System) -> str:
        """Units of the pipeline's own system go by their kind, those of others by their system too."""
        return name if system.id == self.system.id else f"{name} of {system.id}"

    def _stage(self, index: int, stage: StageFile, seat: Seat, inputs: list[Data]) -> tuple[list[PipeStep], Data]:
        place = seat.place
        steps: list[PipeStep] = []
        came = [self._brought(stage, item, seat, steps) for item in inputs]
        frame = Data(
            place=place,
            form="nv12",
            width=self.file.width,
            height=self.file.height,
            bytes=self.file.width * self.file.height * PIXEL_BYTES["nv12"],
        )
        data = max(came, key=lambda item: item.bytes) if came else frame
        work, out = {
            "decode": self._decode,
            "resize": self._resize,
            "convert": self._convert,
            "model": self._model,
            "work": self._work,
        }[stage.kind](Job(index, stage, seat), data.at(place), steps)
        if stage.output is not None:
            out = Data(place=place, bytes=stage.output)
        return [*steps, work], out

    def _brought(self, stage: StageFile, data: Data, seat: Seat, steps: list[PipeStep]) -> Data:
        """Append the steps that bring `data` to the seat of the stage in the way that it asks for; from one device to
        another by way of the host."""
        place = seat.place
        way = stage.transport or ("copy" if data.place != place else "shared")
        if way == "shared" and data.place == place:
            return data
        message = way in ("protobuf", "base64", "json")
        if data.place == place and not message:
            steps.append(self._copy("copy", data.bytes))
            return data
        if data.place != _HOST:
            steps += self._over_the_link(data, "copy to the host", self._owner(data.place))
        if message:
            steps += self._messages(way, data)
        if place != _HOST:
            steps += self._over_the_link(data, "copy to the device", seat.system)
        return data.at(place)

    def _owner(self, place: str) -> System:
        """The system whose device memory is called so."""
        systems = (self.system, *self.others.values())
        return next(system for system in systems if self._named(_DEVICE, system) == place)

    def _copy(self, name: str, size: float) -> PipeStep:
        """One core copies: every byte is read and written."""
        return PipeStep(
            name=name,
            kind="copy",
            unit=_CPU,
            time_s=size / self.fact("copy_rate"),
            moved_bytes=2.0 * size,
            memory=_HOST,
            uses=("pipelines.copy_rate",),
        )

    def _over_the_link(self, data: Data, name: str, system: System) -> list[PipeStep]:
        chip = system.chip
        rate = chip.need("host_oneway_bytes_per_s", "copies between host and device")
        link = PipeStep(
            name=name,
            kind="copy",
            unit=self._named(_LINK, system),
            time_s=self.fact("launch_time") + data.bytes / rate,
            moved_bytes=data.bytes,
            memory=_HOST,
            uses=(chip.fact_id("host_oneway_bytes_per_s"), "pipelines.launch_time"),
        )
        return [link] if self.file.dma else [self._copy("copy through pinned memory", data.bytes), link]

    def _messages(self, way: str, data: Data) -> list[PipeStep]:
        """A call with the payload encoded, sent to the other process, and decoded."""
        grown = 1.0 if way == "protobuf" else self.fact(f"{way}_expansion")
        sent = data.bytes * grown
        write, read = ("json_write_rate", "json_read_rate") if way == "json" else (f"{way}_rate", f"{way}_rate")
        size = sent if way == "json" else data.bytes  # rates of JSON are of its text
        parts = []
        for name, rate in (("encode", write), ("decode", read)):
            time_s = size / self.fact(rate)
            moved = data.bytes + sent
            parts.append(
                PipeStep(
                    name=f"{name} {way}",
                    kind="serialise",
                    unit=_CPU,
                    time_s=time_s,
                    moved_bytes=moved,
                    memory=_HOST,
                    uses=(f"pipelines.{rate}", *((f"pipelines.{way}_expansion",) if grown > 1 else ())),
                )
            )
        call = PipeStep(
            name="call", kind="call", unit=_CPU, time_s=self.fact("call_time"), uses=("pipelines.call_time",)
        )
        return [parts[0], call, self._copy("copy through a socket", sent), parts[1]]

    def _as_form(self, data: Data, form: str, seat: Seat, steps: list[PipeStep]) -> Data:
        """Append the conversion of `data` to `form` where it is a frame in another one."""
        if not data.pixels or data.form == form:
            return data
        new = data.as_form(form)
        steps.append(self._passes((f"{data.form} to {form}", "convert"), data, new, (seat, "convert_rate")))
        return new

    def _passes(self, named: tuple[str, Kind], data: Data, new: Data, how: tuple[Seat, str]) -> PipeStep:
        """One pass over pixels: at the rate of a core, or at the bandwidth of the accelerator's memory."""
        (name, kind), (seat, rate) = named, how
        moved = data.bytes + new.bytes
        if seat.on_core:
            time_s, uses = data.pixels / self.fact(rate), (f"pipelines.{rate}",)
        else:
            chip = seat.system.chip
            bandwidth = chip.need("memory_bandwidth_bytes_per_s", "a pass over pixels on the device")
            time_s = self.fact("launch_time") + moved / bandwidth
            uses = (chip.fact_id("memory_bandwidth_bytes_per_s"),)
        return PipeStep(
            name=name,
            kind=kind,
            unit=seat.unit,
            time_s=time_s,
            moved_bytes=moved,
            memory=seat.place,
            uses=uses,
        )

    def _decode(self, job: Job, data: Data, steps: list[PipeStep]) -> tuple[PipeStep, Data]:
        stage, seat = job.stage, job.seat
        rate = "video_core_rate" if seat.on_core else "video_engine_rate"
        time_s = stage.time if stage.time is not None else data.pixels / self.fact(rate)
        step = PipeStep(
            name="decode",
            unit=seat.unit,
            time_s=time_s,
            moved_bytes=_REFERENCES * data.bytes,
            memory=data.place,
            uses=() if stage.time is not None else (f"pipelines.{rate}",),
        )
        return step, data

    def _resize(self, job: Job, data: Data, steps: list[PipeStep]) -> tuple[PipeStep, Data]:
        stage, seat = job.stage, job.seat
        if not data.pixels:
            raise ScenarioError(f"{self.spot(job.index)}: a resize needs a frame, the stage ahead hands on bytes")
        if seat.on_core:
            data = self._as_form(data, "rgb", seat, steps)
        size = (stage.width or 0, stage.height or 0)
        new = Data(
            place=data.place,
            form=data.form,
            width=size[0],
            height=size[1],
            bytes=size[0] * size[1] * PIXEL_BYTES[data.form],
        )
        return self._timed(stage, self._passes(("resize", "work"), data, new, (seat, "resize_rate"))), new

    def _convert(self, job: Job, data: Data, steps: list[PipeStep]) -> tuple[PipeStep, Data]:
        if not data.pixels:
            raise ScenarioError(f"{self.spot(job.index)}: a conversion needs a frame, the stage ahead hands on bytes")
        new = data.as_form("fp32" if data.form == "rgb" else "rgb")
        named: tuple[str, Kind] = (f"{data.form} to {new.form}", "convert")
        return self._timed(job.stage, self._passes(named, data, new, (job.seat, "convert_rate"))), new

    def _timed(self, stage: StageFile, step: PipeStep) -> PipeStep:
        """The step with the time that the file gives, where it gives one."""
        if stage.time is None:
            return step
        return PipeStep(
            name=step.name,
            kind=step.kind,
            unit=step.unit,
            time_s=stage.time,
            moved_bytes=step.moved_bytes,
            memory=step.memory,
        )

    def _work(self, job: Job, data: Data, steps: list[PipeStep]) -> tuple[PipeStep, Data]:
        stage = job.stage
        time_s = (stage.time or 0.0) * stage.items
        step = PipeStep(
            name=stage.name,
            unit=job.seat.unit,
            time_s=time_s,
            moved_bytes=stage.moves or 0.0,
            memory=data.place if stage.moves else "",
        )
        return step, data

    def _model(self, job: Job, data: Data, steps: list[PipeStep]) -> tuple[PipeStep, Data]:
        index, stage, seat = job.index, job.stage, job.seat
        times = self.models.of(stage, seat.system, self.spot(index))
        self.notes += [note for note in times.notes if note not in self.notes]
        if data.pixels and times.image is not None and stage.items == 1 and (data.width, data.height) != times.image:
            wide, high = times.image
            told = f"{stage.model} takes {wide} x {high}, the stage ahead hands on {data.width} x {data.height}"
            raise ScenarioError(f"{self.spot(index)}: {told}; put a resize ahead of it")
        if data.pixels and times.form == "fp32":
            self._as_form(data, "fp32", seat, steps)
        elif data.pixels:
            self._as_form(data, times.form, Seat(_CPU, _HOST, self.system), steps)
        factor = self.changed.get(MODELS, 1.0)
        step = PipeStep(
            name=stage.model or stage.name,
            unit=seat.unit,
            time_s=stage.time if stage.time is not None else factor * times.batch_s[0],
            batch_s=tuple(factor * time_s for time_s in times.batch_s) if stage.time is None else (),
            moved_bytes=times.moved_bytes if seat.place == _HOST else 0.0,
            memory=_HOST if seat.place == _HOST else "",
            uses=times.uses,
        )
        if stage.output is None:
            text = f"stage {stage.name}: {_ANSWER_BYTES:,.0f} bytes handed on (workload.pipeline.stages.{index}.output)"
            note = Note("fill", text)
            self.notes += [note] if note not in self.notes else []
        return step, Data(place=data.place, bytes=_ANSWER_BYTES)
