"""Texts: those of the program, whatever is made beside them."""

import os
import signal
import subprocess
import sys
import time

import gguf
import numpy as np
import pytest
from conftest import STORIES, program

from spec_run import LLM, Batch, Context, Engine, Evaluator, Job, Model, RunLayers, SamplingParams, agreement
from spec_run.llm import _waves

PROMPTS = ["Once upon a time", "Tom had a red ball.", "The sun was", "Lily and her mom went to"]
GREEDY = SamplingParams(temperature=0, max_tokens=40)


@pytest.fixture(scope="module")
def llm(model):
    return LLM(model)


def test_texts_are_those_of_the_program(llm):
    for settings, flags in [
        (SamplingParams(temperature=0, max_tokens=40), ["--temp", 0]),
        (
            SamplingParams(temperature=0.8, top_k=40, top_p=0.95, min_p=0.05, seed=7, max_tokens=40),
            ["--temp", 0.8, "--top-k", 40, "--top-p", 0.95, "--min-p", 0.05, "-s", 7],
        ),
    ]:
        made = llm.generate(PROMPTS, settings)
        for prompt, out in zip(PROMPTS, made):
            said = program("-p", prompt, "-n", 40, "--json", *flags)
            assert out.outputs[0].text == said["text"]
            assert out.prompt == prompt and out.outputs[0].finish_reason in ("length", "stop")


def test_no_text_depends_on_its_company_or_on_drafts(llm, model):
    params = SamplingParams(temperature=0.8, seed=3, max_tokens=30)
    together = [out.outputs[0].token_ids for out in llm.generate(PROMPTS * 3, params)]
    alone = [llm.generate(prompt, params)[0].outputs[0].token_ids for prompt in PROMPTS]
    plain = [out.outputs[0].token_ids for out in LLM(model, drafts=False, texts=1).generate(PROMPTS, params)]
    assert together == alone * 3 == plain * 3


def test_a_seed_gives_the_text_again(llm):
    first = llm.generate(PROMPTS[0], SamplingParams(max_tokens=20))[0].outputs[0]
    again = llm.generate(PROMPTS[0], SamplingParams(max_tokens=20, seed=first.seed))[0].outputs[0]
    assert again.token_ids == first.token_ids
    several = llm.generate(PROMPTS[0], SamplingParams(max_tokens=20, n=3, seed=5))[0].outputs
    assert [one.seed for one in several] == [5, 6, 7] and len({one.text for one in several}) > 1


def test_the_text_of_a_mask_is_that_of_its_passes(llm, model):
    mask = RunLayers(model.n_layer, skip_mlp=[2, 9])
    context = Context(model)
    tokens = model.tokenize(PROMPTS[0])
    logits = context.decode(Batch.prompt(tokens, run_layers=mask))
    expected = []
    for _ in range(12):
        expected.append(int(logits[0].argmax()))
        logits = context.decode(Batch.prompt([expected[-1]], pos=context.length(), run_layers=mask))
    params = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)
    assert llm.generate(PROMPTS[0], params, mask=mask)[0].outputs[0].token_ids == expected
    spelled = {"schema": 1, "masks": [{"name": "m", "skip_mlp": [2, 9]}]}
    assert llm.generate(PROMPTS[0], params, mask=spelled)[0].outputs[0].token_ids == expected


def test_stop_texts_end_a_text_and_are_not_shown(llm):
    whole = llm.generate(PROMPTS[0], GREEDY)[0].outputs[0].text
    word = whole.split()[7]
    out = llm.generate(PROMPTS[0], GREEDY.clone(stop=[word, "never said"]))[0].outputs[0]
    assert out.text == whole[: whole.index(word)] and out.finish_reason == "stop" and out.stop_reason == word
    assert out.token_ids != []


def test_log_probabilities_are_of_the_logits(llm, model):
    out = llm.generate(PROMPTS[1], SamplingParams(temperature=0, max_tokens=5, logprobs=3, prompt_logprobs=2))[0]
    tokens = out.prompt_token_ids + out.outputs[0].token_ids
    logits = Context(model).decode(Batch.prompt(tokens, all_logits=True)).astype(np.float64)
    logits -= logits.max(axis=1, keepdims=True)
    expected = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    told = out.prompt_logprobs[1:] + out.outputs[0].logprobs
    assert out.prompt_logprobs[0] is None and len(told) == len(tokens) - 1
    for at, (token, place) in enumerate(zip(tokens[1:], told)):
        assert place[token].logprob == pytest.approx(expected[at, token], abs=1e-6)
        best = int(expected[at].argmax())
        assert place[best].rank == 1 and place[best].decoded_token == model.piece(best).decode(errors="replace")
    assert len(out.outputs[0].logprobs[0]) == 3 and 2 <= len(told[1]) <= 3
    summed = sum(place[token].logprob for token, place in zip(out.outputs[0].token_ids, out.outputs[0].logprobs))
    assert out.outputs[0].cumulative_logprob == pytest.approx(summed)


def test_a_stream_has_the_same_text_piece_by_piece(llm):
    whole = llm.generate(PROMPTS[2], GREEDY)[0].outputs[0]
    stream = llm.stream(PROMPTS[2], GREEDY)
    pieces = list(stream)
    assert len(pieces) > 10 and "".join(pieces) == whole.text == stream.output.text
    left = llm.stream(PROMPTS[2], SamplingParams(max_tokens=None, ignore_eos=True))
    next(left)
    del left
    deadline = time.monotonic() + 10
    while llm.engine.status()["running"] and time.monotonic() < deadline:
        time.sleep(0.02)
    assert llm.engine.status()["running"] == 0


def test_the_report_says_what_was_drafted(llm):
    out = llm.generate(PROMPTS[0], SamplingParams(temperature=0, max_tokens=120))[0].outputs[0]
    report = out.report
    assert {source["name"] for source in report["sources"]} == set(llm.engine.sources)
    assert all(source["accepted"] <= source["drafted"] for source in report["sources"])


def test_a_proposer_in_python_drafts_and_changes_nothing(llm, model):
    prompt = model.tokenize(PROMPTS[0])
    whole = llm.generate([prompt], SamplingParams(temperature=0, max_tokens=60))[0].outputs[0].token_ids
    text = prompt + whole

    def knows(tokens):
        return text[len(tokens) : len(tokens) + 8] if tokens == text[: len(tokens)] else []

    own = LLM(model, masks={}, proposers={"knows": knows}, texts=1)
    out = own.generate([prompt], SamplingParams(temperature=0, max_tokens=60))[0].outputs[0]
    used = next(source for source in out.report["sources"] if source["name"] == "knows")
    assert out.token_ids == whole and used["accepted"] > 20 and used["accepted"] == used["drafted"]
    liar = LLM(model, masks={}, proposers={"liar": lambda tokens: [7, 7, 7]}, texts=1)
    assert liar.generate([prompt], SamplingParams(temperature=0, max_tokens=60))[0].outputs[0].token_ids == whole


def test_what_a_proposer_raises_comes_out(model):
    def fails(tokens):
        raise LookupError("no idea")

    with pytest.raises(LookupError, match="no idea"):
        LLM(model, masks={}, proposers={"fails": fails}).generate(PROMPTS[0], GREEDY)


def test_scores_are_those_of_decoding(llm, model):
    text = "Once upon a time there was a dog."
    mask = RunLayers.exit(model.n_layer, 4)
    full, masked = llm.score([text, "The sun"], masks=[None, mask])
    for one, run_layers in [(full[0], None), (masked[0], mask)]:
        tokens = model.tokenize(text)
        logits = Context(model).decode(Batch.prompt(tokens, all_logits=True, run_layers=run_layers))
        rows = logits.astype(np.float64)
        rows -= rows.max(axis=1, keepdims=True)
        expected = (rows - np.log(np.exp(rows).sum(axis=1, keepdims=True)))[np.arange(len(tokens) - 1), tokens[1:]]
        assert np.allclose(one.logprobs, expected, atol=1e-6) and one.token_ids == tokens
        assert one.likeliest.tolist() == logits[:-1].argmax(axis=1).tolist()
    assert full[0].perplexity < masked[0].perplexity
    assert llm.score([text])[0].logprobs.tobytes() == full[0].logprobs.tobytes()


def test_endings_of_one_context_evaluate_it_once(llm, model):
    context = model.tokenize("Once upon a time there was a little girl named Lily. One day she went to the")
    endings = [model.tokenize(word, add_special=False) for word in ("park", "sea", "old house", "moon")]
    requests = [(context, ending) for ending in endings]
    together = llm.loglikelihoods(requests)
    alone = [LLM(model, drafts=False).loglikelihoods([(context, ending)])[0] for ending in endings]
    assert together == alone
    # The first of them goes ahead, and the others go on from its cells.
    assert list(_waves([c + e for c, e in requests], [len(context)] * 4, 8)) == [[0], [1, 2, 3]]
    jobs = [llm.engine.submit(Job(context + ending, max_tokens=0, scores_from=len(context))) for ending in endings]
    assert all(job.result().cached_tokens == len(context) - 1 for job in jobs)


def test_agreement_has_the_numbers_of_the_program(model):
    said = program("perplexity", "-f", STORIES, "-c", 64, "--chunks", 3, "--exit", "4,8", "--json")
    text = STORIES.read_text().removesuffix("\n")
    found = agreement(model, text, {e: RunLayers.exit(model.n_layer, e) for e in (4, 8)}, chunk=64, chunks=3)
    assert (found.ppl, found.tokens, found.chunks) == (said["base_ppl"], said["tokens"], 3)
    for row in said["rows"]:
        mine = found[row["exit"]]
        for ours, theirs in [("ppl", "ppl"), ("agreement", "agreement"), ("overlap", "overlap"), ("kl", "kl")]:
            assert getattr(mine, ours) == row[theirs]
        assert (mine.acceptance, mine.cost, mine.delta_stderr) == (row["acceptance"], row["cost"], row["delta_stderr"])
    with pytest.raises(ValueError, match="chunk needs 64"):
        Evaluator(model, chunk=64).sweep([1, 2, 3], [])


def test_a_conversation_is_answered_by_a_template(llm, model):
    said = [{"role": "user", "content": "Hi"}]
    prompt = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    out = llm.chat(said, GREEDY, chat_template="chatml")[0]
    assert out.prompt == prompt and out.prompt_token_ids == model.tokenize(prompt, parse_special=True)
    assert out.outputs[0].text == llm.generate([out.prompt_token_ids], GREEDY)[0].outputs[0].text
    begun = [*said, {"role": "assistant", "content": "Once"}]
    assert llm.chat(begun, GREEDY, chat_template="chatml", continue_final_message=True)[0].prompt == prompt + "Once"
    with pytest.raises(Exception, match="tokenizer.chat_template") as raised:
        llm.chat(said)
    assert "\n" not in str(raised.value)
    with pytest.raises(ValueError, match=r"messages\[0\]: a message needs a `role`"):
        llm.chat([{"content": "Hi"}])


@pytest.mark.parametrize(
    "what, kind, line",
    [
        (lambda m: SamplingParams(max_tokens=-1), ValueError, "max_tokens -1: 0 or more, or None"),
        (lambda m: LLM(m).generate([{"prompt_token_ids": []}]), ValueError, "the prompt has no tokens"),
        (lambda m: LLM(m, n_ctx=32).generate([[5] * 40]), ValueError, "the prompt has 40 tokens"),
        (lambda m: LLM(m).generate("Hi", mask=RunLayers(3)), ValueError, "for 3 layers, the model has 16"),
        (lambda m: LLM(m).generate("Hi", mask=7), ValueError, "a RunLayers, a path or a dict is needed, not int"),
        (lambda m: LLM(m).generate("Hi", mask="/no/such"), FileNotFoundError, "/no/such"),
        (lambda m: LLM(m).generate("Hi", [SamplingParams()] * 2), ValueError, "2 SamplingParams for 1 prompts"),
        (lambda m: LLM(m, drafts=False, masks={}), ValueError, "they need drafts=True"),
        (lambda m: LLM(m, texts=0), ValueError, "texts 0: 1 to 1024"),
        (lambda m: Job([1], tmep=1), TypeError, 'there is no setting "tmep"'),
        (lambda m: Job([1], temp="hot"), TypeError, "temp: "),
        (lambda m: LLM("/no/such.gguf"), FileNotFoundError, "/no/such.gguf"),
    ],
)
def test_what_cannot_be_is_an_exception_of_one_line(model, what, kind, line):
    with pytest.raises(kind) as raised:
        what(model)
    said = str(raised.value)
    assert line in said and "\n" not in said


LONG = """
import sys
from spec_run import LLM, SamplingParams, Model, Context, Batch, agreement, RunLayers
model = Model.embedded()
def generate():
    LLM(model, n_ctx=100000).generate("Once", SamplingParams(max_tokens=None, ignore_eos=True))
def sweep():
    text = "Once upon a time there was a dog. " * 20000
    agreement(model, text, [RunLayers.exit(16, e) for e in range(1, 16)], chunk=256)
def decode():
    context = Context(model, n_ctx=200000)
    context.decode(Batch.prompt([5] * 200000))
print("begun", flush=True)
try:
    {what}()
except KeyboardInterrupt:
    print("interrupted", flush=True)
    sys.exit(3)
"""


@pytest.mark.parametrize("what", ["generate", "sweep", "decode"])
def test_ctrl_c_ends_what_takes_long(what):
    child = subprocess.Popen([sys.executable, "-c", LONG.format(what=what)], stdout=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "begun\n"
    time.sleep(1.5)
    child.send_signal(signal.SIGINT)
    asked = time.monotonic()
    said, _ = child.communicate(timeout=20)
    assert (child.returncode, said) == (3, "interrupted\n") and time.monotonic() - asked < 10


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_nothing_is_left_of_a_thousand_models(say):
    """An engine, texts and a context each; what the first hundred leave is the allocator's."""

    def once(i):
        engine = Engine(Model.embedded(), drafts=False, n_ctx=64, threads=1, repack=False)
        engine.submit(Job([1, 5 + i % 50], max_tokens=1)).result()
        Context(engine.model, n_ctx=32, threads=1, repack=False).decode(Batch.prompt([1, 2]))

    for i in range(100):
        once(i)
    before = resident()
    for i in range(900):
        once(i)
    grown = resident() - before
    say(f"900 more models, engines and contexts: {grown / 1e6:+.1f} MB")
    # One that stayed would be some megabytes, nine hundred of them gigabytes.
    assert grown < 30e6


def test_python_adds_nothing_to_speak_of(llm, say):
    """Of 256 tokens, what is not the engine's own time. Other work on the machine adds to it, so the least of several counts."""
    params = SamplingParams(temperature=0, max_tokens=256, ignore_eos=True)
    shares = []
    for _ in range(9):
        started = time.perf_counter()
        out = llm.generate(PROMPTS[0], params)[0].outputs[0]
        wall = time.perf_counter() - started
        shares.append(wall / (out.prefill_seconds + out.decode_seconds) - 1)
    share = min(shares)
    say(f"generate() takes {100 * share:.2f} % more than the engine's own time for 256 tokens")
    assert share < 0.03


def test_texts_have_adapters_of_their_own(model, tmp_path):
    rng, sides = np.random.default_rng(5), {"attn_q": (256, 256), "ffn_down": (768, 256)}
    for name in ["one", "two"]:
        writer = gguf.GGUFWriter(tmp_path / name, "llama")
        writer.add_string("general.type", "adapter")
        writer.add_string("adapter.type", "lora")
        for layer in range(model.n_layer):
            for part, (cols, rows) in sides.items():
                for end, shape in [("a", (4, cols)), ("b", (rows, 4))]:
                    numbers = rng.normal(0, 0.2, shape).astype(np.float32)
                    writer.add_tensor(f"blk.{layer}.{part}.weight.lora_{end}", numbers)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
    files = [tmp_path / "one", (tmp_path / "two", 0.5)]
    llm = LLM(model, loras=files)
    texts = {scales: llm.generate(PROMPTS[0], GREEDY, loras=scales)[0].outputs[0].text for scales in [(0, 0), (1, 0), (1, 0.5)]}
    assert texts[0, 0] == LLM(model).generate(PROMPTS[0], GREEDY)[0].outputs[0].text
    assert texts[1, 0.5] == llm.generate(PROMPTS[0], GREEDY)[0].outputs[0].text
    assert len(set(texts.values())) == 3
    flags = ["--lora", tmp_path / "one", "--lora-scaled", f"{tmp_path / 'two'}:0.5"]
    assert program("-p", PROMPTS[0], "-n", 40, "--json", "--temp", 0, *flags)["text"] == texts[1, 0.5]
    with pytest.raises(ValueError, match="there must be a number for each of the 2"):
        llm.generate(PROMPTS[0], GREEDY, loras=[1])
