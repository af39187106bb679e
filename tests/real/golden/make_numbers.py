"""Writes numbers.json: perplexities and log-probabilities of models that people trained, by a forward pass in numpy.

    pip install numpy gguf
    python3 make_numbers.py LLAMA_SERVER MODELS TEXTS             # all models, a quarter of an hour
    python3 make_numbers.py LLAMA_SERVER MODELS TEXTS smollm2     # this one anew; the others' numbers stay

LLAMA_SERVER is llama.cpp's program; it makes the tokens, and its numbers stand beside ours. MODELS is the folder with the
files that llama_server.py names, TEXTS the one with wiki-a.txt and stories-val.txt. It takes 7 GB of memory.

Weights are dequantized to f32 by the Python package gguf. All else is f64, keys and values too, and nothing is rounded on
the way. So these numbers are the model's own, and a runtime's distance from them is that runtime's error.
"""

import json
import pathlib
import sys

import gguf
import numpy

from llama_server import FILES, serving

OUT = pathlib.Path(__file__).parent / "numbers.json"
PERPLEXITIES = {  # text, context, chunks
    "smollm2": [("wiki-a.txt", 512, 4), ("stories-val.txt", 512, 4)],
    # Its windows are 512 wide, so only the last one looks beyond them.
    "gemma3": [("wiki-a.txt", 512, 4), ("stories-val.txt", 512, 4), ("wiki-a.txt", 2048, 1)],
    "qwen2.5-coder": [("wiki-a.txt", 512, 2), ("stories-val.txt", 512, 2)],
}
TURN = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"
PROMPTS = {
    "smollm2": [
        "The three primary colors are",
        "def fibonacci(n):\n    if n < 2:\n        return n\n",
        TURN.format("Name two animals that live in the sea, in one sentence."),
    ],
    "gemma3": [
        "The three primary colors are",
        "Die Hauptstadt von Österreich ist",
        "# A list of planets\n\n1. Mercury\n2. Venus\n3.",
    ],
    "qwen2.5-coder": [
        "fn is_prime(n: u64) -> bool {\n    if n < 2 {\n",
        TURN.format("Write a haiku about the sea."),
        TURN.format("什么是递归？用一句话回答。"),
    ],
}
GREEDY = 8
LIKELIEST = 10


class Model:
    def __init__(self, path):
        reader = gguf.GGUFReader(path)
        self.fields = {key: field.contents() for key, field in reader.fields.items() if not key.startswith("tokenizer.ggml.t")}
        self.tensors = {tensor.name: tensor for tensor in reader.tensors}
        self.weights = {}
        self.arch = self.fields["general.architecture"]
        self.eps = self.of("attention.layer_norm_rms_epsilon")
        self.heads, self.kv_heads = self.of("attention.head_count"), self.of("attention.head_count_kv")
        self.head = self.of("attention.key_length", self.of("embedding_length") // self.heads)
        self.vocab = len(self.weight("token_embd.weight"))

    def of(self, key, default=None):
        return self.fields.get(f"{self.arch}.{key}", default)

    def weight(self, name):
        if name not in self.weights:
            tensor = self.tensors[name]
            self.weights[name] = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        return self.weights[name]

    def times(self, x, name):
        y = x @ self.weight(f"{name}.weight").T.astype(x.dtype, copy=False)
        return y + self.weight(f"{name}.bias") if f"{name}.bias" in self.tensors else y

    def norm(self, x, name):
        return x / numpy.sqrt(numpy.mean(x * x, -1, keepdims=True) + self.eps) * self.weight(f"{name}.weight")

    def rope(self, x, base):
        """x is [tokens, heads, head]. Llama's pairs are neighbours, those of the others are half a head apart."""
        half = self.head // 2
        angle = numpy.arange(len(x))[:, None, None] * base ** (-numpy.arange(half) / half)
        cos, sin = numpy.cos(angle), numpy.sin(angle)
        near, far = (slice(0, None, 2), slice(1, None, 2)) if self.arch == "llama" else (slice(half), slice(half, None))
        a, b = x[..., near], x[..., far]
        out = numpy.empty_like(x)
        out[..., near], out[..., far] = a * cos - b * sin, a * sin + b * cos
        return out

    def attention(self, layer, q, k, v):
        """One text's. Every sixth layer of Gemma sees all of it; the others see a window and turn faster."""
        base, window = self.of("rope.freq_base"), len(q)
        if self.arch == "gemma3" and (layer + 1) % 6:
            base, window = self.of("rope.freq_base_swa", 10000.0), self.of("attention.sliding_window")
        q, k, v = (x.reshape(len(x), -1, self.head) for x in (q, k, v))
        if self.arch == "gemma3":
            q, k = self.norm(q, f"blk.{layer}.attn_q_norm"), self.norm(k, f"blk.{layer}.attn_k_norm")
        q, k = self.rope(q, base), self.rope(k, base)
        distance = numpy.subtract.outer(numpy.arange(len(q)), numpy.arange(len(q)))
        seen = (distance >= 0) & (distance < window)
        out = numpy.empty_like(q)
        for h in range(self.heads):
            group = h * self.kv_heads // self.heads
            score = numpy.where(seen, q[:, h] @ k[:, group].T / self.head**0.5, -numpy.inf)
            share = numpy.exp(score - score.max(-1, keepdims=True))
            out[:, h] = share @ v[:, group] / share.sum(-1, keepdims=True)
        return out.reshape(len(q), -1)

    def block(self, layer, x, cuts):
        name = f"blk.{layer}."
        gemma = self.arch == "gemma3"
        y = self.norm(x, name + "attn_norm")
        q, k, v = (numpy.split(self.times(y, name + part), cuts) for part in ("attn_q", "attn_k", "attn_v"))
        y = numpy.concatenate([self.attention(layer, *qkv) for qkv in zip(q, k, v)])
        y = self.times(y, name + "attn_output")
        x = x + (self.norm(y, name + "post_attention_norm") if gemma else y)
        y = self.norm(x, name + "ffn_norm")
        gate = self.times(y, name + "ffn_gate")
        if gemma:  # GELU by tanh, as the model was trained
            gate = gate * 0.5 * (1 + numpy.tanh((2 / numpy.pi) ** 0.5 * (gate + 0.044715 * gate**3)))
        else:
            gate = gate / (1 + numpy.exp(-gate))
        y = self.times(gate * self.times(y, name + "ffn_up"), name + "ffn_down")
        return x + (self.norm(y, name + "post_ffw_norm") if gemma else y)

    def hidden(self, texts, dtype=numpy.float64):
        """What the head is multiplied with, for every token of some texts that do not see each other."""
        x = self.weight("token_embd.weight")[numpy.concatenate(texts)].astype(dtype)
        if self.arch == "gemma3":
            x *= x.shape[-1] ** 0.5
        cuts = numpy.cumsum([len(text) for text in texts])[:-1]
        for layer in range(self.of("block_count")):
            x = self.block(layer, x, cuts)
        return numpy.split(self.norm(x, "output_norm"), cuts)

    def logprobs(self, hidden):
        logits = self.times(hidden, "output" if "output.weight" in self.tensors else "token_embd")
        logits -= logits.max(-1, keepdims=True)
        return logits - numpy.log(numpy.exp(logits).sum(-1, keepdims=True))

    def chunks(self, tokens, context, count):
        """As llama-perplexity cuts a text: the first token of each is the one that begins texts, where the model has one."""
        chunks = [tokens[i * context : (i + 1) * context] for i in range(count)]
        assert all(len(chunk) == context for chunk in chunks)
        if self.fields.get("tokenizer.ggml.add_bos_token"):
            chunks = [[self.fields["tokenizer.ggml.bos_token_id"]] + chunk[1:] for chunk in chunks]
        return chunks

    def counted(self, chunks):
        """Log-probabilities of the tokens after the second half of each chunk's, the last one left out: there is none after it."""
        rows = []
        for chunk, hidden in zip(chunks, self.hidden(chunks)):
            half = len(chunk) // 2
            probs = self.logprobs(hidden[half:-1])
            rows.append(probs[numpy.arange(len(probs)), chunk[half + 1 :]])
        return numpy.array(rows)


def perplexity(server, model, folder, name, context, count):
    text = (pathlib.Path(folder) / name).read_bytes().decode()
    chunks = model.chunks(server.tokens(text, True, False), context, count)
    ours = model.counted(chunks)
    (letter,) = server.tokens("a", False, False)
    ask = lambda chunk, i: server.logprob(chunk[:i], letter, chunk[i], model.vocab)
    theirs = numpy.array([[ask(chunk, i) for i in range(context // 2 + 1, context)] for chunk in chunks])
    return {
        "text": name,
        "context": context,
        "chunks": count,
        "perplexity": round(float(numpy.exp(-ours.mean())), 5),
        "llama_cpp": {
            "perplexity": round(float(numpy.exp(-theirs.mean())), 5),
            "mean_error": round(float(abs(ours - theirs).mean()), 5),
        },
        "logprobs": ours.round(4).tolist(),
    }


def likeliest(server, model, texts):
    (letter,) = server.tokens("a", False, False)
    starts = [server.tokens(text, True, True) for text in texts]
    tokens = [list(start) for start in starts]
    for _ in range(GREEDY):  # f32 is enough to choose, and quicker; that f64 chooses the same is seen below
        for text, hidden in zip(tokens, model.hidden(tokens, numpy.float32)):
            text.append(int(model.logprobs(hidden[-1:]).argmax()))
    made = []
    for text, start, all, hidden in zip(texts, starts, tokens, model.hidden(tokens)):
        positions = []
        for at, probs in enumerate(model.logprobs(hidden[len(start) - 1 :]), len(start)):
            best = numpy.argsort(-probs)[:LIKELIEST].tolist()
            assert at == len(all) or best[0] == all[at], (text, at)
            theirs = server.next_token(all[:at], letter, 1000)
            positions.append({
                "tokens": best,
                "logprobs": probs[best].round(5).tolist(),
                "llama_cpp": [round(theirs[token], 5) for token in best],
            })
        made.append({"text": text, "tokens": start, "greedy": all[len(start) :], "positions": positions})
    return made


def dump(value, depth=0):
    """Lists of numbers take a line, all else is indented."""
    if isinstance(value, dict):
        inner = [f"{json.dumps(key)}: {dump(item, depth + 1)}" for key, item in value.items()]
        ends = "{}"
    elif isinstance(value, list) and value and isinstance(value[0], (dict, list)):
        inner, ends = [dump(item, depth + 1) for item in value], "[]"
    else:
        return json.dumps(value, separators=(",", ":"))
    pad = " " * (depth + 1)
    return ends[0] + "\n" + pad + (",\n" + pad).join(inner) + "\n" + " " * depth + ends[1]


def main(program, models, texts, *names):
    goldens = json.loads(OUT.read_text()) if names else {}
    for name in names or FILES:
        path = pathlib.Path(models) / FILES[name]
        model = Model(path)
        with serving(program, path) as server:
            goldens[name] = {
                "perplexities": [perplexity(server, model, texts, *job) for job in PERPLEXITIES[name]],
                "prompts": likeliest(server, model, PROMPTS[name]),
            }
    OUT.write_text(dump(goldens) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
