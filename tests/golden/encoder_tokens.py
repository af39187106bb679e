#!/usr/bin/env python3
"""encoder_tokens.json: what llama.cpp makes of texts with two encoders' vocabularies, which are in its source.

  encoder_tokens.py LLAMA_CPP GEN JUDGE        (see make_embed.py)

llama.cpp's library refuses a file with a vocabulary alone, so GEN adds a tiny model. Hangul is left out: llama.cpp keeps one
part of each syllable of it; we keep all three, as the tokenizers do that the models were trained with."""
import json, os, subprocess, sys
import gguf

HERE = os.path.dirname(os.path.abspath(__file__))
llama_cpp, gen, judge = sys.argv[1:4]
texts = open(llama_cpp + '/models/ggml-vocab-bert-bge.gguf.inp', encoding='utf-8').read().split('\n__ggml_vocab_test__\n')
texts += [row['text'] for row in json.load(open(HERE + '/../real/golden/minilm.json', encoding='utf-8'))]
texts += ['\ufb01ne \ufb00 \u2460 \uff21\uff42c \u00bd \u2122', '\u0130stanbul \u0131\u01c5', 'a\u0301 e\u0308 \u00c0\u00c9', 'x [MASK] y <mask> </s> <s>',
          '  leading and trailing  ', '\u0928\u092e\u0938\u094d\u0924\u0947 \u0926\u0941\u0928\u093f\u092f\u093e', 'x\ufffdy']
texts = [t for t in texts if '\0' not in t]
golden = {'texts': texts}
for name in ('bert-bge', 'nomic-bert-moe'):
    out = f'/tmp/encoder-{name}.gguf'
    r = gguf.GGUFReader(f'{llama_cpp}/models/ggml-vocab-{name}.gguf'); w = gguf.GGUFWriter(out + '.meta', 'bert')
    for key, v in {'context_length': 512, 'embedding_length': 32, 'block_count': 1, 'feed_forward_length': 48, 'attention.head_count': 4}.items(): w.add_uint32('bert.' + key, v)
    w.add_float32('bert.attention.layer_norm_epsilon', 1e-12)
    for key, f in r.fields.items():
        if not key.startswith('tokenizer.'): continue
        if f.types[0] == gguf.GGUFValueType.ARRAY: w.add_key_value(key, f.contents(), gguf.GGUFValueType.ARRAY, sub_type=f.types[-1])
        else: w.add_key_value(key, f.contents(), f.types[0])
    w.write_header_to_file(); w.write_kv_data_to_file(); w.close()
    subprocess.run([gen, 'model', out + '.meta', '1', out], check=True, stdout=subprocess.DEVNULL)
    said = subprocess.run([judge, out, 'tokenize'] + texts, check=True, capture_output=True, text=True).stdout
    golden[name] = [[int(id) for id in line.split(',') if id] for line in said.split('\n')[:-1]]
    assert len(golden[name]) == len(texts)
    os.remove(out); os.remove(out + '.meta')
with open(HERE + '/encoder_tokens.json', 'w') as f: json.dump(golden, f, separators=(',', ':'))
