"""Files of masks, as `spec-run --draft-skip FILE` reads them."""

import json
import os
from collections.abc import Mapping
from typing import Any, Union

from . import _native
from ._native import Model, RunLayers

#: A mask as functions take it: a `RunLayers`, the path of a file of masks (its first one), or what such a file has.
Mask = Union[RunLayers, str, "os.PathLike[str]", Mapping[str, Any]]


def write_masks(
    path: "str | os.PathLike[str]",
    model: Model,
    masks: "Mapping[str, RunLayers | tuple[RunLayers, Mapping[str, Any]]]",
    provenance: "Mapping[str, Any] | None" = None,
) -> None:
    """Writes masks by name, best first; with a mask may come what is known of it.

    >>> import os, tempfile
    >>> from spec_run import Model, RunLayers, read_masks
    >>> model = Model.embedded()
    >>> path = os.path.join(tempfile.mkdtemp(), "skips.json")
    >>> write_masks(path, model, {"half": RunLayers.exit(model.n_layer, 8)})
    >>> read_masks(path, model)
    [('half', <spec_run.RunLayers attn skips 8-15; mlp skips 8-15>)]
    """
    rows = []
    for name, mask in masks.items():
        mask, known = mask if isinstance(mask, tuple) else (mask, {})
        rows.append((name, mask, json.dumps(dict(known))))
    _native.write_masks(os.fspath(path), model, rows, json.dumps(dict(provenance or {})))
