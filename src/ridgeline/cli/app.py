"""The list of verbs."""

from __future__ import annotations

import typer

from ridgeline.cli import cite, listing, plan, roofline, serve, show, train, validate

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


app.command("plan", help=plan.__doc__)(plan.command)
app.command("train", help=train.__doc__)(train.command)
app.command("serve", help=serve.__doc__)(serve.command)
app.command("roofline", help=roofline.__doc__)(roofline.command)
app.command("list", help=listing.__doc__)(listing.command)
app.command("show", help=show.__doc__)(show.command)
app.command("cite", help=cite.__doc__)(cite.command)
app.command("validate", help=validate.__doc__)(validate.command)
