"""A narrower torchvision network for a folder of images.

    python examples/torchvision_folder.py photos runs/photos
    python examples/torchvision_folder.py photos runs/try --quick     # every stage once, to see that all is well

The folder has train/CLASS/*.jpg and test/CLASS/*.jpg, or CLASS/*.jpg, of which a fixed fifth is held out for testing.
Stopped at any moment, the same command goes on.
"""

import argparse

import bcnet

QUICK = {"epochs": 1, "batch_size": 16}


def main() -> None:
    options = arguments()
    outcome = bcnet.search(
        f"torchvision:{options.model}",
        f"imagefolder:{options.images}",
        budget=bcnet.Budget(macs=0.5),  # half the multiply-adds
        run_dir=options.run,
        options={"image_size": options.image_size},
        progress=True,
        training=QUICK if options.quick else None,
    )
    for name, figures in outcome.result.networks.items():
        print(f"{name}: {figures.macs:,} multiply-adds, {figures.test['top1']:.2f} % of the test images right")
    # To give away: weights, architecture and normalisation in one file. bcnet.load(file) makes the network again.
    exported = bcnet.export_run(options.run, format="safetensors")
    print(f"Report: {outcome.run_dir / 'report.html'}\nNetwork: {exported.path}")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Narrow a torchvision network for a folder of images.")
    parser.add_argument("images", help="folder of images, one subfolder for each class")
    parser.add_argument("run", help="run directory, new or to go on with")
    parser.add_argument("--model", default="mobilenet_v3_small")
    parser.add_argument("--image-size", type=int, default=64)
    parser.add_argument("--quick", action="store_true", help="one epoch, few candidates")
    return parser.parse_args()


if __name__ == "__main__":
    main()
