"""A timm network for a device that likes widths in eights: look at the space, search, time what was found.

    python examples/timm_model.py photos runs/timm --model resnet10t
    python examples/timm_model.py photos runs/try --model resnet10t --quick

The last stage, layer4 of a ResNet, keeps its widths here, as an example of choosing what is searched.
"""

import argparse

import timm
import torch

import bcnet

QUICK = {"epochs": 1, "batch_size": 16}
SPACE = {"num_choices": 10, "multiple_of": 8, "ignore": ("*layer4*",)}


def main() -> None:
    options = arguments()
    size = options.image_size
    space = bcnet.WidthSpace.trace(timm.create_model(options.model), torch.zeros(2, 3, size, size), **SPACE)
    print(f"{len(space.groups)} width groups can be searched; {len(space.fixed)} dimensions stay as they are, because")
    for reason in sorted({held.reason for held in space.fixed}):
        print(f"  {reason}")

    outcome = bcnet.search(
        f"timm:{options.model}",
        f"imagefolder:{options.images}",
        budget=bcnet.Budget(macs=0.7),
        run_dir=options.run,
        options={"image_size": size},
        progress=True,
        space=SPACE,
        training=QUICK if options.quick else None,
    )
    latency = bcnet.measure_latency(options.run, rounds=5 if options.quick else 50)
    for name, time in latency.milliseconds.items():
        print(f"{name}: {time.median:.2f} ms ({time.low:.2f} to {time.high:.2f}), {latency.macs_ratio[name]:.2f}x MACs")
    bcnet.write_report(options.run)  # again, now with the times
    exported = bcnet.export_run(options.run, format="safetensors")
    print(f"Report: {outcome.run_dir / 'report.html'}\nNetwork: {exported.path}")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Narrow a timm network for a folder of images.")
    parser.add_argument("images", help="folder of images, one subfolder for each class")
    parser.add_argument("run", help="run directory, new or to go on with")
    parser.add_argument("--model", default="resnet10t", help="a ResNet of timm: what stays is named as there")
    parser.add_argument("--image-size", type=int, default=64)
    parser.add_argument("--quick", action="store_true", help="one epoch, few candidates")
    return parser.parse_args()


if __name__ == "__main__":
    main()
