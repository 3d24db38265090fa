"""Check of the data's classes: balance, missing images, classes unknown to the model."""

from __future__ import annotations

import dataclasses

from keras_vit import arguments, data
from keras_vit.doctor.context import DoctorContext
from keras_vit.doctor.finding import Finding, Findings


def check_classes(context: DoctorContext) -> list[Finding]:
    """Checks for problems found by `keras_vit.data.check`, and for classes the model lacks."""
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
            "Use the same names for folders and labels.",
            f"None of the {len(names)} classes of the data ({arguments.shortlist(names)}) is among "
            f"the {len(labels)} names of the model ({arguments.shortlist(labels)}); they were "
            "matched by their places.",
            unknown=list(names),
        )
    elif context.unknown:
        lacked = set(context.unknown)
        number = sum(bool(lacked & set(examples.shown(i))) for i in range(len(examples)))
        found.serious(
            "classes unknown to the model",
            "Correct the spelling, leave the images out, or train a classifier that has them.",
            f"{number} of {len(examples)} images are of classes that the model has no name "
            f"for: {arguments.shortlist(context.unknown)}.",
            unknown=list(context.unknown),
            images=number,
        )
    if bad := check.audit.bad:
        found.serious(
            "images that do not decode",
            "Repair or remove them (keras-vit data check lists them), or train with "
            "--on-bad-image skip.",
            f"{len(bad)} of {looked_at} images cannot be used, such as {': '.join(bad[0])}.",
            bad=len(bad),
        )
    if check.refused:
        fix = "Nothing, if the images are only to evaluate on."
        found.warning("data that cannot be trained on", fix, check.refused)
    if groups := check.audit.contradictions:
        found.warning(
            "contradicting labels",
            "Decide for one label each (keras-vit data check lists them).",
            f"{len(groups)} pictures stand under several classes, among {looked_at} images, "
            f"such as {' = '.join(groups[0])}.",
            contradictions=len(groups),
        )
    if leaks := check.leaks:
        found.warning(
            "images in both parts",
            "Take them out of one part: the accuracy on them says nothing.",
            f"{len(leaks)} pictures are in the training and in the validation part, such "
            f"as {' = '.join(leaks[0])}.",
            leaks=len(leaks),
        )
    if empty:
        found.add(
            # A small sample of many classes is intended.
            "warning" if len(empty) <= len(names) / 2 else "note",
            "classes without images",
            "Remove the folder or the class, or find out where its images are.",
            f"{len(empty)} of {len(names)} classes have no image: {arguments.shortlist(empty)}.",
            empty=empty,
        )
    if rare:
        listed = arguments.shortlist([f"{name}: {count}" for name, count in rare.items()])
        found.warning(
            "class imbalance",
            "Train with class_weights=balanced (keras-vit train --set class_weights=balanced), "
            "for other models with fit(class_weight=...), and judge by the F1 of each class.",
            f"{len(rare)} classes have less than a tenth of the {most} images of the largest "
            f"one: {listed}.",
            rare=rare,
            largest=most,
        )
    seen = f"{len(examples)} images in {len(names)} classes of {fewest} to {most} images each; "
    seen += f"{looked_at} of them were decoded."
    return found or found.fine("classes", evidence=seen, counts=counts)


def _refusal(context: DoctorContext) -> str:
    """Returns the reason why training rejects the images, without those that do not decode."""
    bad = {name for name, _ in context.check.audit.bad}
    kept = [i for i, name in enumerate(context.examples.names) if name not in bad]
    try:
        data.require_trainable(context.examples.subset(kept))
    except ValueError as error:
        return str(error)
    return ""
