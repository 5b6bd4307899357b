"""The list of verbs."""

from __future__ import annotations

import typer

from ridgeline.cli import calibrate, cite, listing, plan, roofline, serve, show, simulate, train, validate

app = typer.Typer(
    name="ridgeline",
    help="How fast, how hot, how much memory, energy and money a model needs on given machines, and why.",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)


def _version(value: bool) -> None:
    if value:
        from ridgeline import __version__

        typer.echo(__version__)
        raise typer.Exit()


@app.callback()
def _root(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
) -> None:
    """How fast, how hot, how much memory, energy and money a model needs on given machines, and why.

    A question is a scenario file (see examples/), an answer is a table or, with --json, the same as data.
    """


_VERBS = (
    ("plan", plan, "Rank the machines of a scenario."),
    ("train", train, "A training job in detail, part by part."),
    ("serve", serve, "A serving system in detail, part by part."),
    ("simulate", simulate, "Requests one by one: percentiles, goodput."),
    ("roofline", roofline, "Each operation: time, bound, figure to improve."),
    ("list", listing, "Ids of a kind: systems, models, devices..."),
    ("show", show, "A record of the catalogue, or a config.json."),
    ("cite", cite, "Sources and assumed values of an answer."),
    ("validate", validate, "Score predictions against measurements."),
    ("calibrate", calibrate, "Fit the laws of a device to your own points."),
)
for _name, _module, _short in _VERBS:
    app.command(_name, help=_module.__doc__, short_help=_short)(_module.command)
