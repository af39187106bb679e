"""The library's contracts, held against the library: `examples/logits.rs` prints what Rust computes."""

import json
import subprocess

import numpy as np
import pytest
from conftest import PROGRAM, built

from spec_run import Batch, Context, Model, RunLayers, read_masks, write_masks

STORY = "Once upon a time there was a little girl named Lily. She liked to play in the park with her dog."


def rust(tokens, *args):
    """Logits of each list, one below the other."""
    example = built(PROGRAM.parent / "examples/logits")
    lines = "".join(json.dumps(one) + "\n" for one in tokens)
    made = subprocess.run([example, *args], input=lines.encode(), capture_output=True, check=True)
    return np.frombuffer(made.stdout, "<f4")


def test_logits_have_the_bits_of_the_rust_library(model):
    lists = [model.tokenize(STORY), model.tokenize("The sun was hot."), [1]]
    for args, mask in [((), None), (("exit=9",), RunLayers.exit(model.n_layer, 9))]:
        context = Context(model, n_ctx=256)
        rows = []
        for tokens in lists:
            context.remove_all()
            rows.append(context.decode(Batch.prompt(tokens, all_logits=True, run_layers=mask)))
        logits = np.concatenate(rows)
        assert logits.dtype == np.float32 and logits.shape == (sum(map(len, lists)), model.n_vocab)
        assert logits.ravel().tobytes() == rust(lists, *args).tobytes()


def test_forks_pieces_and_instruction_sets_change_no_bit(model):
    tokens = model.tokenize(STORY)
    whole = Context(model).decode(Batch.prompt(tokens, all_logits=True))
    pieces = Context(model, n_ubatch=5).decode(Batch.prompt(tokens, all_logits=True))
    assert np.array_equal(whole, pieces)
    narrow = Context(model, isa="scalar", threads=1).decode(Batch.prompt(tokens, all_logits=True))
    assert np.array_equal(whole, narrow)
    context = Context(model)
    context.decode(Batch.prompt(tokens[:7]))
    context.fork(0, 3)
    context.decode(Batch.prompt([5, 6], pos=7))
    forked = context.decode(Batch.prompt(tokens[7:], pos=7, seq=3, all_logits=True))
    assert np.array_equal(whole[7:], forked)
    context.truncate(0, 7)
    assert (context.length(0), context.length(3)) == (7, len(tokens))
    assert np.array_equal(whole[7:], context.decode(Batch.prompt(tokens[7:], pos=7, all_logits=True)))


def test_logits_belong_to_the_caller(model):
    context = Context(model)
    first = context.decode(Batch.prompt(model.tokenize(STORY)))
    kept = first.copy()
    context.decode(Batch.prompt([9, 8, 7], seq=1))
    assert np.array_equal(first, kept) and first.flags.writeable


def test_hidden_rows_are_those_before_a_layer(model):
    context = Context(model)
    batch = Batch.prompt(model.tokenize(STORY), all_logits=True)
    batch.keep_hidden = 4
    context.decode(batch)
    hidden = context.hidden()
    assert hidden.shape[0] == len(batch) and np.isfinite(hidden).all()
    again = Context(model)
    # The same rows whatever comes after the layer.
    other = Batch.prompt(model.tokenize(STORY), all_logits=True, run_layers=RunLayers.exit(model.n_layer, 6))
    other.keep_hidden = 4
    again.decode(other)
    assert np.array_equal(hidden, again.hidden())


def test_masks_are_values():
    mask = RunLayers(16, skip_attn=[3, 5], skip_mlp=-1)
    assert str(mask) == "attn skips 3,5; mlp skips 15"
    assert mask == RunLayers(16).skip_mlp(15).skip_attn([5, 3]) and hash(mask) == hash(RunLayers(16, skip_attn=[5, 3], skip_mlp=[15]))
    assert mask != RunLayers(16) and RunLayers(16).is_full
    assert mask.attn == [layer not in (3, 5) for layer in range(16)] and mask.mlp[15] is False
    assert RunLayers.exit(16, 4) == RunLayers(16).skip(list(range(4, 16)))
    assert RunLayers.steps(16, list(range(16))).is_full


def test_files_of_masks_are_the_programs_own(model, tmp_path):
    path = tmp_path / "skips.json"
    masks = {"bold": RunLayers.exit(model.n_layer, 5), "mild": RunLayers(model.n_layer, skip_attn=3)}
    known = {"agreement": 0.5, "cost": 0.25, "predicted": {"speedup": 1.25}, "measured": {"tok_s": 10.0}}
    write_masks(path, model, {"bold": (masks["bold"], known), "mild": masks["mild"]}, {"study": "one"})
    assert dict(read_masks(path, model)) == masks
    told = json.loads(path.read_text())
    assert told["provenance"] == {"study": "one"} and told["masks"][0]["measured"] == {"tok_s": 10.0}
    run = [built(PROGRAM), "--draft-skip", path, "-p", "Once", "-n", "20", "--temp", "0", "--json"]
    said = json.loads(subprocess.run(run, capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL).stdout)
    assert {"bold", "mild"} <= {source["name"] for source in said["spec"]["sources"]}


@pytest.mark.parametrize(
    "what, kind, line",
    [
        (lambda m: Model.open("/no/such.gguf"), FileNotFoundError, "/no/such.gguf: No such file"),
        (lambda m: Model.open(__file__), Exception, "test_context.py: "),
        (lambda m: Context(m, n_ctx=0), ValueError, "`n_ctx` takes 1"),
        (lambda m: Context(m, threads=10**6), ValueError, "threads 1000000: at most 1024"),
        (lambda m: Context(m, n_ctx="many"), TypeError, "n_ctx: "),
        (lambda m: Context(m, n_cxt=3), TypeError, "there is no setting 'n_cxt'".replace("'", '"')),
        (lambda m: Context(m, key_type="q2"), ValueError, "supported types are f32, f16, bf16, q8_0, q4_0"),
        (lambda m: Context(m, isa="mmx"), ValueError, "no instruction set is called 'mmx'"),
        (lambda m: Context(m, device="1,0,1"), ValueError, "GPU 1 is named twice"),
        (lambda m: Context(m).decode(Batch()), ValueError, "an empty batch"),
        (lambda m: Context(m).decode(Batch.prompt([10**6])), ValueError, "is not in the vocabulary of"),
        (lambda m: Context(m, n_ctx=4).decode(Batch.prompt([1] * 5)), ValueError, "5"),
        (lambda m: Context(m).truncate(0, 3), ValueError, "sequence 0 has 0 tokens"),
        (lambda m: Context(m).hidden(), ValueError, "keep_hidden"),
        (lambda m: RunLayers(16, skip_attn=16), ValueError, "layer 16: the model has layers 0 to 15"),
        (lambda m: RunLayers(0), ValueError, "n_layer 0"),
        (lambda m: RunLayers.exit(16, 17), ValueError, "exit 17: 1 to 16 layers"),
        (lambda m: Context(m).mask_cost(RunLayers(4)), ValueError, "for 4 layers, the model has 16"),
        (lambda m: read_masks("/no/such.json", m), FileNotFoundError, "/no/such.json"),
        (lambda m: m.detokenize([10**6]), ValueError, "is not in the vocabulary of"),
    ],
)
def test_what_cannot_be_is_an_exception_of_one_line(model, what, kind, line):
    with pytest.raises(kind) as raised:
        what(model)
    said = str(raised.value)
    assert line in said and "\n" not in said
