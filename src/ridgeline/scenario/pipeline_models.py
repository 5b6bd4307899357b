"""Times of the models in a pipeline, by batch: layered networks and encoders of the catalogue."""

from __future__ import annotations

from dataclasses import dataclass, field

from ridgeline.catalog import Catalog
from ridgeline.core import Note
from ridgeline.errors import RidgelineError, ScenarioError, UnknownName, nearest_names
from ridgeline.intake import load_model
from ridgeline.scenario.defaults import encoder_engine_name
from ridgeline.scenario.schema import StageFile
from ridgeline.serving import NetworkServingJob, ServingJob, estimate_encoder, estimate_network
from ridgeline.serving.array import PRECISION, ArrayWork, estimate_array
from ridgeline.specs import Calibration, EngineProfile, Load, Network, ServingPlan, System
from ridgeline.workload.convnets.catalogue import NETWORKS, network
from ridgeline.workload.network_memory import largest_working_set_count


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Times of 1, 2, 3 ... frames together, traffic of one, image and format that go in, and what they rest on."""

    batch_s: tuple[float, ...]
    moved_bytes: float
    image: tuple[int, int] | None
    form: str
    uses: tuple[str, ...]
    notes: tuple[Note, ...]
    sigma: float


@dataclass(slots=True)
class ModelTimes:
    """Remembers the times of every model that was asked for."""

    catalog: Catalog
    known: dict[tuple[object, ...], Times] = field(default_factory=dict)

    def of(self, stage: StageFile, system: System, spot: str) -> Times:
        """Times of the model of `stage` on one device of `system`; messages name `spot`."""
        key = (stage.model, stage.precision, stage.engine, stage.items, stage.batch, system.id)
        if key not in self.known:
            try:
                self.known[key] = self._computed(stage, system, spot)
            except UnknownName as error:
                raise ScenarioError(f"{spot}: {error}") from None
        return self.known[key]

    def _computed(self, stage: StageFile, system: System, spot: str) -> Times:
        name, notes = stage.model or "", []
        engine_id = stage.engine or encoder_engine_name(system.chip)
        engine = self.catalog.engine(engine_id)
        if stage.engine is None:
            notes.append(
                Note("fill", f"{spot}: engine not named, {engine.name or engine.id} {engine.version} is taken")
            )
        sizes = [stage.items * count for count in range(1, stage.batch + 1)]
        if name in NETWORKS:
            return self._network(stage, system, engine, sizes, notes)
        try:
            return self._encoder(stage, system, engine, sizes, notes)
        except RidgelineError as error:
            near = nearest_names(name, [*NETWORKS, *self.catalog.ids("models")])
            hint = f" (networks and models: nearest {', '.join(near)})" if near else ""
            raise ScenarioError(f"{spot}: {error}{hint}") from None

    def _network(
        self, stage: StageFile, system: System, engine: EngineProfile, sizes: list[int], notes: list[Note]
    ) -> Times:
        made = network(stage.model or "")
        calibration = self.catalog.calibration(system.chip.id)
        if f"array.{PRECISION}" in calibration.laws:
            return _array(made, system, calibration, sizes)
        found = [
            estimate_network(
                NetworkServingJob(
                    network=made,
                    batch_count=float(size),
                    precision=stage.precision or "fp16",
                    system=system,
                    calibration=calibration,
                    engine=engine,
                )
            )
            for size in sizes
        ]
        first = found[0]
        return Times(
            batch_s=tuple(item.latency_s.best for item in found),
            moved_bytes=first.memory_bytes_per_s_per_device * first.latency_s.best,
            image=_image(made),
            form="fp32",
            uses=first.uses,
            notes=tuple(notes),
            sigma=first.latency_s.sigma,
        )

    def _encoder(
        self, stage: StageFile, system: System, engine: EngineProfile, sizes: list[int], notes: list[Note]
    ) -> Times:
        precision = stage.precision or "fp16"
        model = load_model(stage.model or "", self.catalog)
        tokens = float(model.encoder_tokens or 128)
        if not model.encoder_tokens:
            notes.append(Note("fill", f"{stage.model}: inputs of 128 tokens are taken"))
        job = ServingJob(
            model=model,
            plan=ServingPlan(weight_precision=precision, activation_precision=precision, kv_precision=precision),
            system=system,
            calibration=self.catalog.calibration(system.chip.id),
            engine=engine,
            load=Load(input_tokens=tokens, output_tokens=0.0),
        )
        found = [estimate_encoder(job, float(size)) for size in sizes]
        first = found[0]
        return Times(
            batch_s=tuple(item.e2e_s.best for item in found),
            moved_bytes=first.memory_bytes_per_s_per_device * first.e2e_s.best,
            image=None,
            form="fp32",
            uses=first.uses,
            notes=(*notes, *first.notes),
            sigma=first.e2e_s.sigma,
        )


def _image(made: Network) -> tuple[int, int] | None:
    """Width and height of the image that a network takes (None: it is no image)."""
    spatial = made.image.spatial
    return (spatial[-1], spatial[0]) if len(spatial) == 2 else None


def array_work(made: Network) -> ArrayWork:
    """What one image of a network is to a fixed array: 8 bits for weights and maps."""
    maps = sum(
        2.0 * node.shape.elements_count * node.copies_count
        for _, node in made.active(training=False)
        if type(node.operator).__name__ in ("Convolution", "Combine")
    )
    return ArrayWork(
        ops_count=made.forward_flop(),
        weights_bytes=float(made.parameters_count),
        pixels_count=float(made.image.positions_count),
        moved_bytes=made.parameters_count + maps,
        widest_bytes=float(largest_working_set_count(made)),
    )


def _array(made: Network, system: System, calibration: Calibration, sizes: list[int]) -> Times:
    """Times on a fixed array (Hailo, Vitis, Edge TPU), inputs prepared beforehand: bytes of colours go in."""
    work = array_work(made)
    found = [estimate_array(work, system.chip, calibration, float(size), "batch") for size in sizes]
    return Times(
        batch_s=tuple(item.latency_s.best for item in found),
        moved_bytes=0.0,
        image=_image(made),
        form="rgb",
        uses=found[0].time.facts(),
        notes=(Note("fill", f"{made.id} on {system.id}: weights and maps of 8 bits"),),
        sigma=found[0].latency_s.sigma,
    )
