"""Embeddings and ranks, by llama.cpp's numbers; the program is the other side where there are none."""

import json
import pathlib
import subprocess

import numpy as np
import pytest
from conftest import PROGRAM

from spec_run import LLM, Embedder, Model

GOLDEN = pathlib.Path(__file__).parents[2] / "tests" / "golden" / "embed"


def golden(name: str, pooling: str) -> tuple[list[list[int]], list[list[list[float]]]]:
    numbers = json.loads((GOLDEN / "embeddings.json").read_text())
    vectors = numbers["models"][name][pooling]
    return numbers["texts"][: len(vectors)], vectors


@pytest.mark.parametrize("pooling", ["mean", "cls", "last", "none"])
def test_vectors_are_llama_cpps(pooling: str) -> None:
    texts, vectors = golden("bert", pooling)
    embedder = Embedder(Model.open(GOLDEN / "bert.gguf"), pooling=pooling, device="cpu")
    assert (embedder.pooling, embedder.width, embedder.max_tokens) == (pooling, 32, 64)
    for text, ours, theirs in zip(texts, embedder.embed(texts), vectors):
        assert ours.shape == (len(text) if pooling == "none" else 1, 32)
        np.testing.assert_allclose(ours, np.array(theirs), atol=3e-3)
        assert np.array_equal(ours, embedder.embed([text])[0])


def test_an_encoder_embeds_and_writes_nothing() -> None:
    llm = LLM(GOLDEN / "bert.gguf", device="cpu")
    one, other = llm.embed(["a b c", "x y"])
    assert one.prompt_token_ids == [2, 5, 6, 7, 3]
    assert abs(float(np.linalg.norm(one.outputs.embedding)) - 1) < 1e-6
    assert np.array_equal(llm.embed([5, 6])[0].outputs.embedding, llm.embed([[5, 6], [7]])[0].outputs.embedding)
    said = subprocess.run(
        [PROGRAM, "embed", "-q", "-m", GOLDEN / "bert.gguf", "-p", "a b c\nx y", "--no-escape"]
        + ["--embd-output-format", "array", "--device", "cpu"],
        check=True, capture_output=True, text=True,
    ).stdout
    np.testing.assert_allclose(json.loads(said), [one.outputs.embedding, other.outputs.embedding], atol=6e-8)
    with pytest.raises(ValueError, match="makes embeddings, not text"):
        llm.generate("a")
    with pytest.raises(ValueError, match="too large"):
        llm.embed([[5] * 65])
    with pytest.raises(ValueError, match='pooling "middle"'):
        llm.embed("a", pooling="middle")


def test_answers_are_scored() -> None:
    llm = LLM(GOLDEN / "bert-rank.gguf", device="cpu")
    documents = ["c d e", "x"]
    scored = llm.score("a b", documents)
    texts, scores = golden("bert-rank", "rank")
    for text, score in zip(texts, scores):
        assert abs(float(llm.embed([text], pooling="rank")[0].outputs.embedding[0]) - score[0][0]) < 3e-3
    # [CLS] a b [SEP] and the answer.
    assert [one.prompt_token_ids for one in scored] == [[2, 5, 6, 3, 7, 8, 9], [2, 5, 6, 3, 28]]
    for one in scored:
        alone = llm.embed([one.prompt_token_ids], pooling="rank")[0]
        assert float(alone.outputs.embedding[0]) == one.outputs.score
    assert llm.score(["a b", "a"], documents)[0].outputs.score == scored[0].outputs.score
    with pytest.raises(ValueError, match="give one, or as many"):
        llm.score(["a", "b", "c"], documents)
    with pytest.raises(Exception, match="no head that says how well texts fit"):
        LLM(GOLDEN / "bert.gguf", device="cpu").score("a", ["b"])
