"""Writes samplers.json: the tokens that llama.cpp chooses for seeds and settings, from made-up logits and as texts of
stories260K.gguf. A token whose random number lies close to the border between two tokens would say nothing, because
logits and exponentials differ in their last digits; such texts are left out.

    pip install llama-cpp-python==0.3.36 numpy
    python3 samplers.py ../../../shared/fixtures/models/stories260K.gguf > samplers.json
"""

import ctypes
import json
import sys

import llama_cpp as llama
import numpy as np

STEPS, TEXT, PROMPT = 64, 48, [1, 403, 407, 261, 378]
DEFAULT = ["penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc", "temperature"]

llama.llama_log_set(ctypes.cast(None, llama.llama_log_callback), ctypes.c_void_p(0))
llama.llama_backend_init()
model = llama.llama_model_load_from_file(sys.argv[1].encode(), llama.llama_model_default_params())
vocab = llama.llama_model_get_vocab(model)
N_VOCAB = llama.llama_vocab_n_tokens(vocab)


def chain_of(seed, n_vocab, s):
    """The chain that llama.cpp's programs make of the settings."""
    chain = llama.llama_sampler_chain_init(llama.llama_sampler_chain_default_params())
    add = lambda sampler: llama.llama_sampler_chain_add(chain, sampler)
    if "logit_bias" in s:
        pairs = (llama.llama_logit_bias * len(s["logit_bias"]))(*map(tuple, s["logit_bias"]))
        add(llama.llama_sampler_init_logit_bias(n_vocab, len(pairs), pairs))
    temp = s.get("temp", 0.8)
    if s.get("mirostat", 0):
        add(llama.llama_sampler_init_temp(temp))
        tau, eta = s.get("mirostat_tau", 5.0), s.get("mirostat_eta", 0.1)
        if s["mirostat"] == 1:
            add(llama.llama_sampler_init_mirostat(n_vocab, seed, tau, eta, 100))
        else:
            add(llama.llama_sampler_init_mirostat_v2(seed, tau, eta))
        return chain
    breakers = s.get("dry_breakers", ["\n", ":", '"', "*"])
    strings = (ctypes.c_char_p * len(breakers))(*[b.encode() for b in breakers])
    make = {
        "penalties": lambda: llama.llama_sampler_init_penalties(
            n_vocab, s.get("repeat_last_n", 64), s.get("repeat_penalty", 1.0),
            s.get("frequency_penalty", 0.0), s.get("presence_penalty", 0.0)),
        "dry": lambda: llama.llama_sampler_init_dry(
            vocab, s.get("dry_multiplier", 0.0), s.get("dry_base", 1.75), s.get("dry_allowed_length", 2),
            s.get("dry_last_n", 64), strings, len(breakers)),
        "top_n_sigma": lambda: llama.llama_sampler_init_top_n_sigma(s.get("top_n_sigma", -1.0)),
        "top_k": lambda: llama.llama_sampler_init_top_k(s.get("top_k", 40)),
        "typ_p": lambda: llama.llama_sampler_init_typical(s.get("typical_p", 1.0), 0),
        "top_p": lambda: llama.llama_sampler_init_top_p(s.get("top_p", 0.95), 0),
        "min_p": lambda: llama.llama_sampler_init_min_p(s.get("min_p", 0.05), 0),
        "xtc": lambda: llama.llama_sampler_init_xtc(
            s.get("xtc_probability", 0.0), s.get("xtc_threshold", 0.1), 0, seed),
        "temperature": lambda: llama.llama_sampler_init_temp_ext(
            temp, s.get("dynatemp_range", 0.0), s.get("dynatemp_exponent", 1.0)),
    }
    for name in s.get("samplers", DEFAULT):
        add(make[name]())
    add(llama.llama_sampler_init_dist(seed))
    return chain


class Chosen:
    """A seed's run through rows of logits."""

    def __init__(self, seed, n_vocab, settings):
        self.chain = chain_of(seed, n_vocab, settings)
        self.random = np.random.RandomState(seed)
        self.draws_alone = not settings.get("mirostat", 0)
        self.margin, self.kept = 1.0, []

    def accept(self, token):
        llama.llama_sampler_accept(self.chain, token)

    def next(self, logits):
        data = (llama.llama_token_data * len(logits))(*[(i, float(l), 0.0) for i, l in enumerate(logits)])
        array = llama.llama_token_data_array(data, len(logits), -1, False)
        llama.llama_sampler_apply(self.chain, ctypes.byref(array))
        token = array.data[array.selected].id
        kept = [(array.data[i].id, array.data[i].p) for i in range(array.size)]
        self.kept.append([id for id, p in kept if p > 0])
        if self.draws_alone or len(kept) > 1:
            low, high = (int.from_bytes(self.random.bytes(4), "little") for _ in range(2))
            ends = np.cumsum([p for _, p in kept])[:-1]
            u = (low + high * 2.0**32) / 2.0**64
            self.margin = min([self.margin, *abs(ends / sum(p for _, p in kept) - u)])
        self.accept(token)
        return token


def made_up(step, n_vocab, period):
    """As in the test: squares of integers, so that f32 has them exactly; rows come again and again."""
    step = step % period if period else 7 if step % 3 == 0 else step
    return [((i * 7919 + step * 10477) % 4001) ** 2 / 2.0**20 for i in range(n_vocab)]


def made_up_case(settings, n_vocab=N_VOCAB, spread=1.0, period=0):
    for seed in range(1, 200):
        run = Chosen(seed, n_vocab, settings)
        tokens = [run.next([l * spread for l in made_up(step, n_vocab, period)]) for step in range(STEPS)]
        if run.margin > 1e-5:
            case = {"settings": settings, "n_vocab": n_vocab, "spread": spread, "period": period, "seed": seed}
            return case | {"tokens": tokens, "kept": run.kept[:3] if max(map(len, run.kept[:3])) < 100 else []}
    raise ValueError(f"no seed is far from every border: {settings}")


def text_cases(settings, count=3):
    params = llama.llama_context_default_params()
    params.n_ctx = 512
    for seed in range(1, 1000):
        context = llama.llama_init_from_model(model, params)
        run = Chosen(seed, N_VOCAB, settings)
        for token in PROMPT:
            run.accept(token)
        batch, tokens = PROMPT, []
        while len(tokens) < TEXT and run.margin > 2e-3:
            array = (llama.llama_token * len(batch))(*batch)
            llama.llama_decode(context, llama.llama_batch_get_one(array, len(batch)))
            row = np.ctypeslib.as_array(llama.llama_get_logits_ith(context, -1), (N_VOCAB,))
            tokens.append(run.next(row))
            batch = [tokens[-1]]
        llama.llama_free(context)
        if run.margin > 2e-3:
            yield {"settings": settings, "seed": seed, "prompt": PROMPT, "tokens": tokens}
            count -= 1
            if count == 0:
                return
    raise ValueError(f"too few texts are far from every border: {settings}")


everything = {"top_k": 0, "top_p": 1.0, "min_p": 0.0}
penalties = {"repeat_penalty": 1.3, "frequency_penalty": 0.2, "presence_penalty": 0.1, "repeat_last_n": 20}
CASES = [
    ({},),
    ({"temp": 1.5, "top_k": 10, "top_p": 0.8, "min_p": 0.0},),
    (everything, N_VOCAB, 0.25),
    (everything | {"top_p": 0.9}, 2000, 0.25),
    (everything | {"top_p": 0.3}, 2000, 0.25),
    (everything | {"min_p": 0.1}, 2000, 0.25),
    ({"typical_p": 0.5},),
    (everything | {"typical_p": 0.7}, N_VOCAB, 0.25),
    (penalties,),
    (everything | {"top_n_sigma": 1.0}, N_VOCAB, 0.25),
    (everything | {"top_n_sigma": 1.5, "dynatemp_range": 0.5, "temp": 1.5}, 2000, 0.25),
    ({"dynatemp_range": 0.7, "dynatemp_exponent": 1.5},),
    ({"xtc_probability": 0.5, "xtc_threshold": 0.1}, N_VOCAB, 2.0),
    ({"xtc_probability": 1.0, "xtc_threshold": 0.05, "temp": 0.0}, N_VOCAB, 2.0),
    ({"xtc_probability": 0.7, "top_p": 0.5, "min_p": 0.3, "xtc_threshold": 0.02}, N_VOCAB, 3.0),
    ({"dry_multiplier": 0.8, "temp": 0.5}, N_VOCAB, 1.0, 5),
    ({"dry_multiplier": 2.0, "dry_base": 1.2, "dry_allowed_length": 1, "dry_last_n": 30}, N_VOCAB, 2.0, 3),
    ({"dry_multiplier": 0.5, "dry_allowed_length": 3, "dry_breakers": ["the d", "y"]}, N_VOCAB, 4.0, 4),
    ({"dry_multiplier": 1.0, "dry_base": 1.0, "dry_breakers": []} | penalties, N_VOCAB, 4.0, 4),
    ({"mirostat": 1},),
    ({"mirostat": 1, "mirostat_tau": 2.0, "mirostat_eta": 0.3, "temp": 1.5, **penalties},),
    ({"mirostat": 2},),
    ({"mirostat": 2, "mirostat_tau": 1.0, "mirostat_eta": 0.5, "temp": 0.6},),
    ({"samplers": ["temperature", "top_p", "top_k"], "temp": 0.5},),
    ({"samplers": ["min_p", "xtc", "top_k", "penalties"], "xtc_probability": 0.5, **penalties}, N_VOCAB, 0.5),
    ({"samplers": ["typ_p", "dry", "temperature"], "typical_p": 0.8, "dry_multiplier": 1.0}, N_VOCAB, 1.0, 5),
    ({"samplers": []}, N_VOCAB, 0.25),
    ({"samplers": ["top_k", "penalties"], "temp": 0.0} | penalties, N_VOCAB, 1.0, 5),
    (penalties | {"logit_bias": [[3, 4.5], [11, -float("inf")], [400, -2.0]]},),
]
TEXTS = [
    {},
    {"temp": 1.2, "top_k": 20},
    {"top_k": 0, "top_p": 0.9, "min_p": 0.0, "temp": 0.7},
    {"repeat_penalty": 1.2, "typical_p": 0.9},
    {"dry_multiplier": 0.8, "xtc_probability": 0.3, "xtc_threshold": 0.15},
    {"mirostat": 2, "mirostat_tau": 3.0},
    {"mirostat": 1, "mirostat_tau": 3.0},
]

# -inf is no JSON.
out = {
    "made_up": [made_up_case(*case) for case in CASES],
    "texts": [case for settings in TEXTS for case in text_cases(settings)],
}
print(json.dumps(out).replace("-Infinity", '"-inf"').replace("], ", "],\n").replace("}, ", "},\n"))
