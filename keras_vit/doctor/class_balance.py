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
    num_decoded = len(check.audit.digests) + len(check.audit.bad)
    findings = Findings()
    labels = context.preprocessing.class_names
    if labels and labels != names and context.matched == "index":
        findings.warning(
            "classes unknown to the model",
            "Use the same class names in the data and in the model.",
            f"None of the {len(names)} classes of the data ({arguments.shortlist(names)}) is "
            f"among the {len(labels)} class names of the model ({arguments.shortlist(labels)}), "
            "so classes were matched by index.",
            unknown=list(names),
        )
    elif context.unknown:
        unknown = set(context.unknown)
        num_unknown = sum(bool(unknown & set(examples.shown(i))) for i in range(len(examples)))
        findings.serious(
            "classes unknown to the model",
            "Correct the names, leave the images out, or train with these classes.",
            f"{num_unknown} of {len(examples)} images have a class that is not among the class "
            f"names of the model: {arguments.shortlist(context.unknown)}.",
            unknown=list(context.unknown),
            images=num_unknown,
        )
    if bad := check.audit.bad:
        findings.serious(
            "images that cannot be decoded",
            "Repair or remove them (keras-vit data check lists them), or train with "
            "--on-bad-image skip.",
            f"{len(bad)} of {num_decoded} images cannot be used, such as {': '.join(bad[0])}.",
            bad=len(bad),
        )
    if check.refused:
        fix = "No change is needed if you only evaluate on this data."
        findings.warning("data that cannot be trained on", fix, check.refused)
    if groups := check.audit.contradictions:
        findings.warning(
            "contradicting labels",
            "Give each image only one label (keras-vit data check lists the images).",
            f"{len(groups)} of {num_decoded} images appear under several classes, such as "
            f"{' = '.join(groups[0])}.",
            contradictions=len(groups),
        )
    if leaks := check.leaks:
        findings.warning(
            "images in both splits",
            "Remove these images from one split; accuracy measured on training images is too high.",
            f"{len(leaks)} images are in both the training and the validation split, such as "
            f"{' = '.join(leaks[0])}.",
            leaks=len(leaks),
        )
    if empty:
        findings.add(
            # In a small sample of many classes, some are expected to be empty.
            "warning" if len(empty) <= len(names) / 2 else "note",
            "classes without images",
            "Remove the empty class, or restore its images.",
            f"{len(empty)} of {len(names)} classes have no image: {arguments.shortlist(empty)}.",
            empty=empty,
        )
    if rare:
        listed = arguments.shortlist([f"{name}: {count}" for name, count in rare.items()])
        findings.warning(
            "class imbalance",
            "Train with class weights (keras-vit train --set class_weights=balanced, or "
            "fit(class_weight=...) for other models), and compare the F1 score of each class.",
            f"{len(rare)} classes have less than a tenth of the {most} images of the largest "
            f"class: {listed}.",
            rare=rare,
            largest=most,
        )
    summary = f"{len(examples)} images in {len(names)} classes with {fewest} to {most} images "
    summary += f"each; {num_decoded} of them were decoded."
    return findings or findings.fine("classes", evidence=summary, counts=counts)


def _refusal(context: DoctorContext) -> str:
    """Returns why training would reject the decodable images, or an empty string."""
    bad = {name for name, _ in context.check.audit.bad}
    usable = [i for i, name in enumerate(context.examples.names) if name not in bad]
    try:
        data.require_trainable(context.examples.subset(usable))
    except ValueError as error:
        return str(error)
    return ""
