#!/usr/bin/env python3
"""Tiny random encoders and decoders, and the embeddings that llama.cpp makes with them: tests/golden/embed.

  make_embed.py GEN JUDGE

GEN is `gen.cpp` beside the fixtures' small models, JUDGE is embed/judge.cpp; both are built against llama.cpp. Needs gguf.
GEN makes up every tensor that llama.cpp may look for; those that real files of an architecture do not have are left out. Keys
and values are f32 and there is no flash attention, so that nothing is rounded on the way."""
import json, os, re, subprocess, sys
import gguf

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'embed')
TOKENS = ['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]'] + ['\u2581' + c for c in 'abcdefghijklmnopqrstuvwxyz'] + list('abcdefghijklmnopqrstuvwxyz0123456')
POOLINGS = ['none', 'mean', 'cls', 'last', 'rank']
TEXTS = [[2, 7, 9, 40, 12, 3], [2, 3], [2] + [5 + (7 * i) % 50 for i in range(45)] + [3], [2, 60, 8, 3]]
LONG = [2] + [5 + (11 * i + i // 7) % 50 for i in range(300)] + [3]  # of more than a chunk of attention
BERT = {'tokenizer.ggml.token_type_count': 2, 'layers': 2}
# What of the optional tensors is kept, by architecture: biases as in real files; the head that ranks where one is named.
MODELS = {
    'bert': dict(BERT, keep=r'^(?!cls).*bias$'),
    'bert-rank': dict(BERT, arch='bert', keep=r'bias$|^cls'),
    'nomic-bert': dict(BERT, keep=r'norm\.bias$'),
    'nomic-bert-moe': dict(BERT, layers=4, keep=r'norm\.bias$|attn.*bias$|ffn.*bias$', kvs={'moe_every_n_layers': 2, 'expert_count': 4, 'expert_used_count': 2}),
    'jina-bert-v2': dict(BERT, heads=6, dim=48, keep=r'^(?!cls|.*attn_[qk]_norm).*bias$|attn_norm_2'),
    'jina-bert-v2-qk': dict(BERT, arch='jina-bert-v2', heads=4, keep=r'^(?!cls|.*attn_norm_2).*bias$|attn_[qk]_norm'),
    'jina-bert-v3': dict(BERT, keep=r'^(?!cls).*bias$'),
    'modern-bert': dict(layers=4, keep=r'^cls|attn_qkv.weight', kvs={'attention.sliding_window': 8, 'rope.freq_base_swa': 1000.0}),
    'gemma-embedding': dict(layers=3, keep=r'^dense|_norm', heads=2, kv=1, kvs={'attention.sliding_window': 8, 'attention.sliding_window_pattern': 2, 'dense_2_feat_in': 32, 'dense_2_feat_out': 48, 'dense_3_feat_in': 48, 'dense_3_feat_out': 32}),
    'qwen3': dict(layers=2, kv=2, causal=True, keep=r'_norm'),
    'qwen3-rank': dict(arch='qwen3', layers=2, kv=2, causal=True, keep=r'^cls\.output|_norm', kvs={'pooling_type': 4, 'classifier.output_labels': ['yes', 'no']}),
}
OPTIONAL = re.compile(r'bias$|_scale$|\.scale$|^cls|^dense_|^output\.weight|attn_norm_2|attn_[qk]_norm|attn_qkv|ffn_gate_up')

def add(w, key, v):
    if isinstance(v, bool): w.add_bool(key, v)
    elif isinstance(v, int): w.add_uint32(key, v)
    elif isinstance(v, float): w.add_float32(key, v)
    elif isinstance(v, str): w.add_string(key, v)
    else: w.add_array(key, v)

def meta(path, arch, o):
    heads, kv = o.get('heads', 4), o.get('kv', o.get('heads', 4))
    k = {'context_length': 64, 'embedding_length': o.get('dim', 32), 'block_count': o['layers'], 'feed_forward_length': 48, 'attention.head_count': heads,
         'attention.head_count_kv': kv, 'attention.layer_norm_epsilon': 1e-12, 'attention.layer_norm_rms_epsilon': 1e-6, 'rope.freq_base': 10000.0,
         'attention.causal': o.get('causal', False)}
    if o.get('causal'): k.update({'attention.key_length': 16, 'attention.value_length': 16})
    k.update(o.get('kvs', {}))
    w = gguf.GGUFWriter(path, arch)
    w.add_name('tiny-' + arch)
    for key, v in k.items(): add(w, f'{arch}.{key}', v)
    if 'tokenizer.ggml.token_type_count' in o: w.add_uint32('tokenizer.ggml.token_type_count', 2)
    w.add_tokenizer_model('bert'); w.add_token_list(TOKENS); w.add_token_types([3] * 5 + [1] * (len(TOKENS) - 5))
    for key, id in (('bos', 2), ('seperator', 3), ('unknown', 1), ('padding', 0), ('mask', 4)): w.add_uint32(f'tokenizer.ggml.{key}_token_id', id)
    w.write_header_to_file(); w.write_kv_data_to_file(); w.close()

def prune(made, out, arch, o):
    """The same without the tensors that are not kept; matrices of layers in halves, which is all that GEN's numbers need."""
    r = gguf.GGUFReader(made); w = gguf.GGUFWriter(out, arch)
    for key, f in r.fields.items():
        if key.startswith('GGUF.') or key == 'general.architecture': continue
        v = f.contents()
        if f.types[0] == gguf.GGUFValueType.ARRAY: w.add_key_value(key, v, gguf.GGUFValueType.ARRAY, sub_type=f.types[-1])
        else: w.add_key_value(key, v, f.types[0])
    kept = [t for t in r.tensors if not (OPTIONAL.search(t.name) and not re.search(o['keep'], t.name))]
    for t in kept:
        if t.name == 'blk.0.attn_norm.weight' and arch == 'modern-bert': continue
        w.add_tensor(t.name, t.data, raw_dtype=t.tensor_type)
    w.write_header_to_file(); w.write_kv_data_to_file(); w.write_tensors_to_file(); w.close()

gen, judge = sys.argv[1:3]
golden = {}
for name, o in MODELS.items():
    arch = o.get('arch', name); out = os.path.join(HERE, name + '.gguf')
    meta(out + '.meta', arch, o)
    subprocess.run([gen, 'model', out + '.meta', '1', out + '.made'], check=True, stdout=subprocess.DEVNULL)
    prune(out + '.made', out, arch, o); os.remove(out + '.meta'); os.remove(out + '.made')
    ranks = '^cls' in o['keep']
    golden[name] = {}
    for n, pooling in enumerate(POOLINGS):
        if pooling == 'rank' and not ranks: continue
        # BERT has places for 64 tokens, and every row of a long text would be many numbers.
        long = [] if arch == 'bert' or pooling == 'none' else [LONG]
        texts = [','.join(map(str, text)) for text in TEXTS + long]
        said = subprocess.run([judge, out, str(n)] + texts, check=True, capture_output=True, text=True).stdout
        golden[name][pooling] = json.loads(said)
    print(name, sorted(t.name for t in gguf.GGUFReader(out).tensors if not t.name.startswith('blk.') or t.name.startswith('blk.1.')))
with open(os.path.join(HERE, 'embeddings.json'), 'w') as f:
    json.dump({'texts': TEXTS + [LONG], 'models': golden}, f, separators=(',', ':'))
