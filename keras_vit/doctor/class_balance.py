"""Check for imbalanced classes, classes without images and classes unknown to the model."""

from __future__ import annotations

import dataclasses

from keras_vit import arguments, data
from keras_vit.doctor.context import DoctorContext
from keras_vit.doctor.finding import Finding, Findings


def check_classes(context: DoctorContext) -> list[Finding]:
    """Reports problems found by `keras_vit.data.check`, and classes that the model lacks."""
    examples, names = context.examples, context.examples.class_names
    counts = dict(zip(names, examples.class_counts().tolist(), strict=True))
    # Counts of all images, not only of the decoded images.
    check = dataclasses.replace(context.check, counts=counts, refused=_refusal(context))
    empty = [name for name, count in counts.items() if not count]
    rare = {name: count for name, count in check.rare.items() if count}
    fewest, most = min(filter(None, counts.values()), default=0), max(counts.values())
    looked_at, found = len(check.audit.digests) + len(check.audit.bad), Findings()
    labels = context.preprocessing.class_names
    if labels and labels != names and context.matched == "index":
        found.warning(
            "classes unknown to the model",
            "Use the same class names in the data and in the model.",
            f"None of the {len(names)} classes of the data ({arguments.shortlist(names)}) is "
            f"among the {len(labels)} class names of the model ({arguments.shortlist(labels)}), "
            "so classes were matched by index.",
            unknown=list(names),
        )
    elif context.unknown:
        lacked = set(context.unknown)
        number = sum(bool(lacked & set(examples.shown(i))) for i in range(len(examples)))
        found.serious(
            "classes unknown to the model",
            "Correct the names, leave the images out, or train with these classes.",
            f"{number} of {len(examples)} images have a class that is not among the class names "
            f"of the model: {arguments.shortlist(context.unknown)}.",
            unknown=list(context.unknown),
            images=number,
        )
    if bad := check.audit.bad:
        found.serious(
            "images that cannot be decoded",
            "Repair or remove them (keras-vit data check lists them), or train with "
            "--on-bad-image skip.",
            f"{len(bad)} of {looked_at} images cannot be used, such as {': '.join(bad[0])}.",
            bad=len(bad),
        )
    if check.refused:
        fix = "No change is needed if you only evaluate on this data."
        found.warning("data that cannot be trained on", fix, check.refused)
    if groups := check.audit.contradictions:
        found.warning(
            "contradicting labels",
            "Give each image only one label (keras-vit data check lists the images).",
            f"{len(groups)} of {looked_at} images appear under several classes, such as "
            f"{' = '.join(groups[0])}.",
            contradictions=len(groups),
        )
    if leaks := check.leaks:
        found.warning(
            "images in both splits",
            "Remove these images from one split; accuracy measured on training images is too high.",
            f"{len(leaks)} images are in both the training and the validation split, such as "
            f"{' = '.join(leaks[0])}.",
            leaks=len(leaks),
        )
    if empty:
        found.add(
            # A small sample of many classes is intended.
            "warning" if len(empty) <= len(names) / 2 else "note",
            "classes without images",
            "Remove the empty class, or restore its images.",
            f"{len(empty)} of {len(names)} classes have no image: {arguments.shortlist(empty)}.",
            empty=empty,
        )
    if rare:
        listed = arguments.shortlist([f"{name}: {count}" for name, count in rare.items()])
        found.warning(
            "class imbalance",
            "Train with class weights (keras-vit train --set class_weights=balanced, or "
            "fit(class_weight=...) for other models), and compare the F1 score of each class.",
            f"{len(rare)} classes have less than a tenth of the {most} images of the largest "
            f"class: {listed}.",
            rare=rare,
            largest=most,
        )
    seen = f"{len(examples)} images in {len(names)} classes with {fewest} to {most} images each; "
    seen += f"{looked_at} of them were decoded."
    return found or found.fine("classes", evidence=seen, counts=counts)


def _refusal(context: DoctorContext) -> str:
    """Returns why training would reject the decodable images, or an empty string."""
    bad = {name for name, _ in context.check.audit.bad}
    kept = [i for i, name in enumerate(context.examples.names) if name not in bad]
    try:
        data.require_trainable(context.examples.subset(kept))
    except ValueError as error:
        return str(error)
    return ""
