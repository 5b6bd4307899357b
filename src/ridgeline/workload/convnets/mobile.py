"""Networks of inverted residuals: MobileNet 1 to 3, EfficientNet 1 and 2 and their relatives.

A stage is written as in the published tables: block kind, repeats, kernel, stride, expansion, channels, and what
follows (se: squeeze-excite share, re/hs/si: activation). Sources: Howard 2017 (arXiv 1704.04861), Sandler 2018
(1801.04381), Howard 2019 (1905.02244), Tan 2019 (1905.11946), Tan 2021 (2104.00298).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ridgeline.specs.network import Network
from ridgeline.workload.convnets.builder import Net, Sizes, divisible, start

IMAGE, CLASSES = 224, 1000  # src: tan-2019
# src: sandler-2018, howard-2019, tan-2019, tan-2021. ds: depthwise-separable, ir: inverted residual, er: fused inverted
# residual, cn: convolution; r repeats, k kernel, s stride, e expansion (x: channels), c channels.
STAGES: dict[str, str] = {
    "mobilenet-v1": "ds r1 k3 s1 c64; ds r2 k3 s2 c128; ds r2 k3 s2 c256; ds r6 k3 s2 c512; ds r2 k3 s2 c1024",
    "mobilenet-v2": (
        "ir r1 k3 s1 e1 c16; ir r2 k3 s2 e6 c24; ir r3 k3 s2 e6 c32; ir r4 k3 s2 e6 c64; ir r3 k3 s1 e6 c96; "
        "ir r3 k3 s2 e6 c160; ir r1 k3 s1 e6 c320"
    ),
    "mobilenet-v3-large": (
        "ir r1 k3 s1 x16 c16 re; ir r1 k3 s2 x64 c24 re; ir r1 k3 s1 x72 c24 re; ir r1 k5 s2 x72 c40 re se; "
        "ir r2 k5 s1 x120 c40 re se; ir r1 k3 s2 x240 c80 hs; ir r1 k3 s1 x200 c80 hs; ir r2 k3 s1 x184 c80 hs; "
        "ir r1 k3 s1 x480 c112 hs se; ir r1 k3 s1 x672 c112 hs se; ir r1 k5 s2 x672 c160 hs se; "
        "ir r2 k5 s1 x960 c160 hs se"
    ),
    "mobilenet-v3-small": (
        "ir r1 k3 s2 x16 c16 re se; ir r1 k3 s2 x72 c24 re; ir r1 k3 s1 x88 c24 re; ir r1 k5 s2 x96 c40 hs se; "
        "ir r2 k5 s1 x240 c40 hs se; ir r1 k5 s1 x120 c48 hs se; ir r1 k5 s1 x144 c48 hs se; "
        "ir r1 k5 s2 x288 c96 hs se; ir r2 k5 s1 x576 c96 hs se"
    ),
    "efficientnet": (
        "ir r1 k3 s1 e1 c16 se; ir r2 k3 s2 e6 c24 se; ir r2 k5 s2 e6 c40 se; ir r3 k3 s2 e6 c80 se; "
        "ir r3 k5 s1 e6 c112 se; ir r4 k5 s2 e6 c192 se; ir r1 k3 s1 e6 c320 se"
    ),
    "efficientnet-lite": (
        "ir r1 k3 s1 e1 c16; ir r2 k3 s2 e6 c24; ir r2 k5 s2 e6 c40; ir r3 k3 s2 e6 c80; "
        "ir r3 k5 s1 e6 c112; ir r4 k5 s2 e6 c192; ir r1 k3 s1 e6 c320"
    ),
    "efficientnet-v2-s": (
        "cn r2 k3 s1 c24; er r4 k3 s2 e4 c48; er r4 k3 s2 e4 c64; ir r6 k3 s2 e4 c128 se; ir r9 k3 s1 e6 c160 se; "
        "ir r15 k3 s2 e6 c256 se"
    ),
    "efficientnet-v2-m": (
        "cn r3 k3 s1 c24; er r5 k3 s2 e4 c48; er r5 k3 s2 e4 c80; ir r7 k3 s2 e4 c160 se; ir r14 k3 s1 e6 c176 se; "
        "ir r18 k3 s2 e6 c304 se; ir r5 k3 s1 e6 c512 se"
    ),
    "efficientnet-v2-l": (
        "cn r4 k3 s1 c32; er r7 k3 s2 e4 c64; er r7 k3 s2 e4 c96; ir r10 k3 s2 e4 c192 se; ir r19 k3 s1 e6 c224 se; "
        "ir r25 k3 s2 e6 c384 se; ir r7 k3 s1 e6 c640 se"
    ),
}
# src: tan-2019; width, depth and image of each member.
COMPOUND: dict[str, str] = {
    "b0": "1.0 1.0 224",
    "b1": "1.0 1.1 240",
    "b2": "1.1 1.2 260",
    "b3": "1.2 1.4 300",
    "b4": "1.4 1.8 380",
    "b5": "1.6 2.2 456",
    "b6": "1.8 2.6 528",
    "b7": "2.0 3.1 600",
}
# src: tan-2019; width, depth and image.
LITE: dict[str, str] = {
    "lite0": "1.0 1.0 224",
    "lite1": "1.0 1.1 240",
    "lite2": "1.1 1.2 260",
    "lite3": "1.2 1.4 280",
    "lite4": "1.4 1.8 300",
}
_SQUEEZE = 4  # src: tan-2019
_ACTIVATIONS = {"re": "relu", "hs": "hard-swish", "si": "silu"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One line of a published table. `expansion` times the input's channels, or `expanded_count` of them."""

    kind: str
    repeats: int
    kernel: int
    stride: int
    channels: int
    expansion: float = 1.0
    expanded_count: int = 0
    squeeze: bool = False
    activation: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Habits:
    """How a family fills in the tables: `squeeze_of_input`: squeezed width is a share of the block's input channels
    (else of the expanded ones, rounded to eights); activations of the gate; multipliers."""

    squeeze_of_input: bool = True
    gate: str = "sigmoid"
    squeeze_act: str = "silu"
    width: float = 1.0
    depth: float = 1.0


def stages(text: str) -> list[Stage]:
    """The lines of a table.

    >>> stages("ir r2 k5 s2 e6 c40 se")[0].expansion
    6.0
    """
    found = []
    for line in text.split(";"):
        kind, *words = line.split()
        sizes = {word[0]: word[1:] for word in words if word not in _ACTIVATIONS and word != "se"}
        found.append(
            Stage(
                kind=kind,
                repeats=int(sizes["r"]),
                kernel=int(sizes["k"]),
                stride=int(sizes["s"]),
                channels=int(sizes["c"]),
                expansion=float(sizes.get("e", 1)),
                expanded_count=int(sizes.get("x", 0)),
                squeeze="se" in words,
                activation=next((_ACTIVATIONS[word] for word in words if word in _ACTIVATIONS), ""),
            )
        )
    return found


def body(net: Net, x: int, table: str, habits: Habits) -> list[int]:
    """All stages; returns the output of each."""
    found = []
    for number, stage in enumerate(stages(table)):
        outputs = divisible(stage.channels * habits.width)
        for index in range(math.ceil(stage.repeats * habits.depth)):
            net.scope = f"stage{number}.{index}."
            x = _block(net, x, outputs, stage, habits, stage.stride if index == 0 else 1)
        found.append(x)
    net.scope = ""
    return found


def _block(net: Net, x: int, outputs: int, stage: Stage, habits: Habits, stride: int) -> int:
    inputs, shortcut = net.channels(x), x
    act = stage.activation or net.activation
    if stage.kind == "cn":
        y = net.block(x, outputs, stage.kernel, stride, act=act)
        return net.sum(y, shortcut) if stride == 1 and inputs == outputs else y
    if stage.kind == "ds":
        y = net.block(x, inputs, stage.kernel, stride, groups=inputs, act=act)
        return net.block(y, outputs, act=act)
    wide = divisible(stage.expanded_count * habits.width) if stage.expanded_count else int(inputs * stage.expansion)
    if stage.kind == "er":
        y = net.block(x, wide, stage.kernel, stride, act=act) if wide != inputs else x
    else:
        y = net.block(x, wide, act=act) if wide != inputs else x
        y = net.block(y, wide, stage.kernel, stride, groups=wide, act=act)
    if stage.squeeze:
        squeezed = max(1, inputs // _SQUEEZE) if habits.squeeze_of_input else divisible(wide / _SQUEEZE)
        y = net.squeeze_excite(y, squeezed, habits.squeeze_act, habits.gate)
    y = net.block(y, outputs, act="")
    return net.sum(y, shortcut) if stride == 1 and inputs == outputs else y


def mobilenet_v1(image: Sizes = IMAGE, width: float = 1.0, classes: int = CLASSES) -> Network:
    """MobileNet with depthwise-separable convolutions.

    >>> mobilenet_v1().parameters_count
    4231976
    """
    net = start(image, activation="relu6")
    x = net.block(-1, divisible(32 * width), 3, 2)  # src: howard-2017
    x = body(net, x, STAGES["mobilenet-v1"], Habits(width=width))[-1]
    net.classifier(x, classes)
    return net.done(f"mobilenet-v1-{width:g}", "howard-2017")


def mobilenet_v2(image: Sizes = IMAGE, width: float = 1.0, classes: int = CLASSES) -> Network:
    """MobileNet with inverted residuals.

    >>> mobilenet_v2().parameters_count
    3504872
    """
    net = start(image, activation="relu6")
    x = net.block(-1, divisible(32 * width), 3, 2)  # src: sandler-2018
    x = body(net, x, STAGES["mobilenet-v2"], Habits(width=width))[-1]
    x = net.block(x, divisible(1280 * max(1.0, width)))  # src: sandler-2018
    net.classifier(x, classes)
    return net.done(f"mobilenet-v2-{width:g}", "sandler-2018")


def mobilenet_v3(size: str = "large", image: Sizes = IMAGE, classes: int = CLASSES) -> Network:
    """MobileNet found by search, "large" or "small".

    >>> mobilenet_v3().parameters_count, mobilenet_v3("small").parameters_count
    (5483032, 2542856)
    """
    net = start(image, activation="hard-swish")
    x = net.block(-1, 16, 3, 2)  # src: howard-2019
    habits = Habits(squeeze_of_input=False, gate="hard-sigmoid", squeeze_act="relu")
    x = body(net, x, STAGES[f"mobilenet-v3-{size}"], habits)[-1]
    x = net.global_pool(net.block(x, 960 if size == "large" else 576))  # src: howard-2019
    x = net.act(net.dense(x, 1280 if size == "large" else 1024))  # src: howard-2019
    net.dense(x, classes)
    return net.done(f"mobilenet-v3-{size}", "howard-2019")


def efficientnet(name: str, image: Sizes | None = None, classes: int = CLASSES, wide_gate: bool = False) -> Network:
    """EfficientNet "b0" to "b7" or "lite0" to "lite4". `wide_gate`: the gate squeezes the expanded channels
    (NVIDIA's "widese").

    >>> efficientnet("b0").parameters_count
    5288548
    """
    lite = name.startswith("lite")
    width, depth, size = ((LITE if lite else COMPOUND)[name]).split()
    net = start(image or int(size), activation="relu6" if lite else "silu")
    habits = Habits(width=float(width), depth=float(depth), squeeze_of_input=not wide_gate)
    fixed = Habits(width=1.0) if lite else habits
    x = net.block(-1, divisible(32 * fixed.width), 3, 2)  # src: tan-2019
    table = STAGES["efficientnet-lite" if lite else "efficientnet"]
    if lite:
        first, *middle, last = table.split(";")
        x = body(net, x, first, Habits(width=habits.width))[-1]
        x = body(net, x, ";".join(middle), habits)[-1]
        x = body(net, x, last, Habits(width=habits.width))[-1]
    else:
        x = body(net, x, table, habits)[-1]
    x = net.block(x, divisible(1280 * fixed.width))  # src: tan-2019
    net.classifier(x, classes)
    return net.done(f"efficientnet-{'widese-' if wide_gate else ''}{name}", "tan-2019")


def efficientnet_v2(size: str = "s", image: Sizes = IMAGE, classes: int = CLASSES) -> Network:
    """EfficientNetV2 "s", "m" or "l".

    >>> efficientnet_v2().parameters_count
    21458488
    """
    net = start(image, activation="silu")
    x = net.block(-1, 32 if size == "l" else 24, 3, 2)  # src: tan-2021
    x = body(net, x, STAGES[f"efficientnet-v2-{size}"], Habits())[-1]
    x = net.block(x, 1280)  # src: tan-2021
    net.classifier(x, classes)
    return net.done(f"efficientnet-v2-{size}", "tan-2021")
