"""Pictures of the kept ratios for documents: `ratios.svg` and `ratios.png`."""

from __future__ import annotations

from bcnet.files.atomic import write_atomic
from bcnet.report.evidence import Evidence
from bcnet.report.look import in_light
from bcnet.report.ratios import chart, layer_rows

_WIDTH = 640  # pixels


def write_pictures(evidence: Evidence) -> None:
    """Write both pictures beside the report, where there are widths to show."""
    if evidence.space is None or evidence.best is None or evidence.uniform is None:
        return
    import vl_convert

    drawing = in_light(chart(layer_rows(evidence.space, evidence.best, evidence.uniform), evidence.space))
    drawing |= {"width": _WIDTH, "autosize": "pad", "background": "white", "title": evidence.name}
    drawing["config"]["font"] = "Liberation Sans, Arial, sans-serif"
    write_atomic(evidence.path / "ratios.svg", vl_convert.vegalite_to_svg(drawing).encode())
    write_atomic(evidence.path / "ratios.png", vl_convert.vegalite_to_png(drawing, scale=2))
