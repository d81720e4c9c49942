"""The shell as people expect it: tables, inspection, missing extras, help, completion, files of models."""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
import subprocess
import sys
import tomllib

import pytest
from shell import LABELS, TEXTS, output

import ramify
from ramify.cli.completion import SHELLS
from ramify.cli.help import EXAMPLES
from ramify.cli.main import main
from ramify.cli.options import configured_model
from ramify.cli.output import format_table
from ramify.cli.parser import make_parser
from ramify.models import REGISTRY, model_class


def test_several_models_in_one_table(model, train, tmp_path, capsys):
    output(capsys, "train", "popular", train, "--out", tmp_path / "p", "--quiet")
    rows = output(capsys, "evaluate", model, tmp_path / "p", train, "--table", "csv").splitlines()
    assert rows[0].startswith(",P@1,")
    assert [row.split(",")[0] for row in rows[1:]] == [str(model), str(tmp_path / "p")]
    values = json.loads(output(capsys, "evaluate", model, tmp_path / "p", train, "--json"))
    assert values[str(model)]["P@1"] > values[str(tmp_path / "p")]["P@1"]
    assert "| --- | ---: |" in output(capsys, "evaluate", model, train, "--table", "markdown", "--ks", "1")
    assert r"\begin{tabular}{lr}" in output(capsys, "evaluate", model, train, "--table", "latex", "--ks", "1")


def test_tables():
    rows = [["", "P@1"], ["a_b|c", "1 %"]]
    assert format_table(rows, "csv") == ",P@1\na_b|c,1 %"
    assert format_table(rows, "markdown").splitlines()[2] == "| a_b&#124;c | 1 % |"
    assert r"a\_b|c & 1 \% \\" in format_table(rows, "latex")


def test_numbers_in_csv_are_those_of_programs():
    assert format_table([["rows", "labels"], ["1,035", "a,b"], ["0.5", "12,345,678"]], "csv").splitlines() == [
        "rows,labels", '1035,"a,b"', "0.5,12345678"
    ]  # fmt: skip


@pytest.mark.parametrize(("style", "titled"), [("csv", False), ("markdown", True), ("latex", True)])
def test_tables_after_one_another_are_separate(style, titled, model, train, capsys):
    """In Markdown and CSV tables without an empty line between them are one table."""
    shown = output(capsys, "evaluate", model, train, "--table", style, "--ks", "1", "--deciles")
    first, *rest = shown.split("\n\n")
    assert rest
    assert "decile" not in first
    assert ("by label frequency decile" in shown) == titled


def test_propensity_constants(model, train, capsys):
    by_name = output(capsys, "evaluate", model, train, "--propensity", "amazon", "--json")
    assert output(capsys, "evaluate", model, train, "--propensity", "0.6,2.6", "--json") == by_name
    with pytest.raises(SystemExit):
        main(["evaluate", str(model), str(train), "--propensity", "sometimes"])
    assert "neither of default, amazon, wikipedia nor two numbers" in capsys.readouterr().err


def test_inspect(model, train, tmp_path, capsys):
    plain = output(capsys, "inspect", model)
    assert "tree0_" not in plain
    assert "tree0_" in output(capsys, "inspect", model, "--arrays")
    with_data = output(capsys, "inspect", model, "--data", train)
    assert "nDCG" in with_data
    assert with_data.index("nDCG") < with_data.index("\nparameter ")  # what matters first
    captured = main(["inspect", str(model), "--plots", str(tmp_path / "plots")]), capsys.readouterr()
    assert captured[0] == 1
    assert captured[1].out == ""  # nothing was printed before the error
    assert "no plots are available for xr-linear" in captured[1].err


def test_combine(model, train, tmp_path, capsys):
    output(capsys, "train", "one-vs-all", train, "--out", tmp_path / "o", "--quiet")
    models = [ramify.load(model), ramify.load(tmp_path / "o")]
    kinds_differ = ("combine", model, tmp_path / "o", "--out", tmp_path / "both", "--weights", "1,2")
    assert main([str(part) for part in kinds_differ]) == 1
    assert "--data FILE" in capsys.readouterr().err
    ramify.XRLinear(verbose=0).fit(TEXTS, [["another"]] * len(TEXTS)).save(tmp_path / "other")
    error = output(capsys, "combine", model, tmp_path / "other", "--out", tmp_path / "both", code=1)
    assert "on different labels" in error
    assert "--data" not in error  # which would not help
    output(capsys, *kinds_differ, "--combine", "rank")
    both, expected = ramify.load(tmp_path / "both"), ramify.Ensemble.of(models, weights=(1.0, 2.0), combine="rank")
    assert both.predict_topk(TEXTS, 3).ids.tolist() == expected.predict_topk(TEXTS, 3).ids.tolist()
    output(capsys, *kinds_differ, "--data", train)
    both, expected = ramify.load(tmp_path / "both"), ramify.Ensemble.of(models, TEXTS, LABELS, weights=(1.0, 2.0))
    assert both.predict_topk(TEXTS, 3).ids.tolist() == expected.predict_topk(TEXTS, 3).ids.tolist()


@pytest.mark.parametrize(
    ("package", "arguments"),
    [
        ("matplotlib", ["inspect", "{elias}", "--plots", "plots"]),
        ("faiss", ["train", "lightdxml", "{train}", "--out", "l"]),
        ("torch", ["train", "xr-transformer", "{train}", "--out", "x", "--set", "encoder=nowhere"]),
        ("pyarrow", ["predict", "{model}", "{train}", "--out", "p.parquet"]),
        ("pyarrow", ["data", "convert", "{train}", "p.parquet"]),
        ("pyarrow", ["data", "stats", "{parquet}"]),
        ("rdflib", ["labels", "{model}", "--set", "vocabulary.ttl"]),
        ("Stemmer", ["train", "one-vs-all", "{train}", "--out", "s", "--set", "features.stemmer=french"]),
        ("ray", ["train", "xr-linear", "{train}", "--out", "r", "--engine", "ray", "--work-dir", "w"]),
        ("fastapi", ["serve", "{model}"]),
        ("optuna", ["tune", "one-vs-all", "{train}", "--sampler", "optuna", "--out", "t.toml"]),
    ],
)
def test_missing_extras_are_named(package, arguments, model, train, tmp_path):
    if "{elias}" in arguments:
        training = ramify.TrainingConfig(epochs=1)
        ramify.Elias(stage1=training, stage2=training).fit(TEXTS, LABELS).save(tmp_path / "e")
    (tmp_path / "d.parquet").write_bytes(b"PAR1 and so on")
    paths = {"train": train, "model": model, "elias": tmp_path / "e", "parquet": tmp_path / "d.parquet"}
    code = (
        f"import sys; sys.modules[{package!r}] = None; from ramify.cli.main import main; sys.exit(main(sys.argv[1:]))"
    )
    command = [sys.executable, "-c", code, *(a.format(**paths) for a in arguments)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "pip install 'ramify[" in done.stderr


def commands(parser, prefix=()):
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, sub in action.choices.items():
                yield (*prefix, name), sub
                yield from commands(sub, (*prefix, name))


def test_every_command_shows_examples():
    parser = make_parser()
    found = dict(commands(parser))
    assert "examples:" in parser.format_help()
    for path, sub in found.items():
        assert "examples:\n  " in sub.format_help(), path
    assert {path[-1] for path in found} | {"ramify"} == set(EXAMPLES)


@pytest.mark.parametrize("line", sorted({line for lines in EXAMPLES.values() for line in lines}))
def test_examples_are_valid(line):
    command = shlex.split(line.split("ramify ", 1)[1].split(" > ")[0].split(" >> ")[0].split(" | ")[0])
    if "--help" not in command:
        assert make_parser().parse_args(command).command == command[0]


def test_unknown_options_show_the_usage_of_their_command(capsys):
    with pytest.raises(SystemExit):
        main(["train", "popular", "x", "--out", "y", "--confg", "z"])
    error = capsys.readouterr().err
    assert "usage: ramify train" in error
    assert "did you mean --config?" in error


def test_help_lists_the_parameters_of_the_transformer(capsys):
    with pytest.raises(SystemExit):
        main(["train", "xr-transformer", "--help"])
    shown = capsys.readouterr().out
    assert "encoder.max_length = 128" in shown
    assert "encoder.dim" in shown


@pytest.mark.parametrize("shell", SHELLS)
def test_completion(shell, capsys):
    script = output(capsys, "completion", shell)
    for word in ("train", "xr-linear", "dry-run", "convert"):
        assert word in script
    if shell == "bash" and shutil.which("bash"):
        ask = 'COMP_WORDS=(ramify train --dr); COMP_CWORD=2; _ramify; echo "${COMPREPLY[@]}"'
        done = subprocess.run(["bash", "-c", f"{script}\n{ask}"], capture_output=True, text=True)
        assert done.stdout.strip() == "--dry-run", done.stderr


@pytest.mark.parametrize("key", sorted(REGISTRY))
def test_new(key, tmp_path, capsys):
    text = output(capsys, "new", key)
    assert tomllib.loads(text) == {}  # the defaults are comments
    uncommented = "\n".join(
        line[2:] for line in text.splitlines() if line.startswith("# ") and " = " in line and not line.endswith(")")
    )
    (tmp_path / "all.toml").write_text(uncommented)
    again = configured_model(model_class(key), str(tmp_path / "all.toml"), [])
    assert again.to_dict() == model_class(key)().to_dict()


def test_new_of_a_preset(tmp_path, capsys):
    output(capsys, "new", "xr-linear", "--preset", "pecos", "--out", tmp_path / "p.toml")
    model = configured_model(ramify.XRLinear, str(tmp_path / "p.toml"), [])
    assert model.to_dict() == ramify.XRLinear.pecos().to_dict()
    assert "exists" in output(capsys, "new", "popular", "--out", tmp_path / "p.toml", code=1)


def test_card(model, train, tmp_path, capsys):
    text = output(capsys, "card", model, "--data", train)
    for word in ("# m\n", "`XRLinear`", "| labels | 30 |", "nDCG", "ramify.load('m')"):
        assert word in text
    output(capsys, "card", model, "--out", tmp_path / "card.md")
    assert (tmp_path / "card.md").read_text().startswith("# m\n")
