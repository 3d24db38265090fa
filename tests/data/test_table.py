from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from keras_vit.data.table import load_table
from keras_vit.preprocessing import imagenet_labels


@pytest.fixture
def table(tmp_path: Path, write: Callable[..., Path]) -> Callable[[str], Path]:
    """Writes labels.csv beside the images 1.png, 2.png and sub/3.png."""
    write(tmp_path, ["1.png", "2.png", "sub/3.png"])

    def write_table(text: str) -> Path:
        path = tmp_path / "labels.csv"
        path.write_text(text, encoding="utf-8")
        return path

    return write_table


def test_label_alone_gives_sorted_classes(table: Callable[[str], Path]) -> None:
    path = table("author,label,file\nx,tulip,sub/3.png\ny,daisy,1.png\nz,tulip,2.png\n")
    examples = load_table(path)
    assert examples.names == ("sub/3.png", "1.png", "2.png")
    assert examples.class_names == ("daisy", "tulip")
    assert examples.labels.tolist() == [1, 0, 1]
    assert examples.read(0) == (path.parent / "sub" / "3.png").read_bytes()
    assert examples.columns == {"author": ("x", "y", "z")}


def test_spreadsheet_export_is_understood(table: Callable[[str], Path]) -> None:
    path = table("\ufefffile, label\r\n1.png, a\r\n\r\n2.png,b \r\n")
    assert load_table(path).class_names == ("a", "b")


@pytest.mark.parametrize(
    "text",
    [
        "file,class_index\n1.png,985\n2.png,0\n",
        "file,wnid\n1.png,n11939491\n2.png,n01440764\n",
        "file,class_index,wnid,label\n1.png,985,n11939491,Gänseblümchen\n2.png,0,n01440764,fish\n",
        "file,class_index,label\n1.png,985,daisy\n2.png,0,tench\n",
        "file,wnid,label\n1.png,n11939491,my daisy\n2.png,n01440764,my fish\n",
    ],
)
def test_imagenet_columns_give_the_1000_classes(table: Callable[[str], Path], text: str) -> None:
    examples = load_table(table(text))
    assert examples.labels.tolist() == [985, 0]
    assert examples.class_names == imagenet_labels()


def test_class_index_orders_labels_of_ones_own(table: Callable[[str], Path]) -> None:
    path = table("file,class_index,label\n1.png,1,ant\n2.png,0,bee\nsub/3.png,1,ant\n")
    examples = load_table(path)
    assert examples.class_names == ("bee", "ant")
    assert examples.labels.tolist() == [1, 0, 1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "must have a header line .*with the columns None"),
        ("name,label\n1.png,a\n", r"must have a header line .*columns \['name', 'label'\]"),
        ("file,class\n1.png,a\n", "one of class_index, wnid, label, labels. "),
        ("file,label\n", "must name at least one image"),
        ("file,label\n1.png,a\n2.png,b\n1.png,b\n", "each image once. .*'1.png' in lines 2 and 4"),
        ("file,label\n1.png,a\n0.png,b\n", r"must exist, .*Received: 1 missing, .*\['0.png'\]"),
        ("file,label\n1.png,a\n2.png,\n", "`label` must not be empty. .*in line 3"),
        ("file,label\n1.png,a\n2.png\n", "`label` must not be empty. .*in line 3"),
        ("file,wnid\n1.png,n00000000\n", "`wnid` must be one of .*'n00000000'.* in line 2"),
        ("file,class_index\n1.png,1000\n", "`class_index` must be a class of ImageNet-1k.*'1000'"),
        ("file,class_index\n1.png,-1\n", "`class_index` must be a whole number.*'-1'"),
        ("file,class_index,wnid\n1.png,1,n01440764\n", "and agree with `wnid`. .*n01440764"),
        ("file,class_index,label\n1.png,0,a\n2.png,2,b\n", "without a gap.*Received: .*2, 'b'"),
        ("file,class_index,label\n1.png,0,a\n2.png,0,b\n", "each with one `label`"),
        ("file,class_index,label\n1.png,0,a\n2.png,1,a\n", "each with one `label`"),
        ("file,labels\n1.png,a\n2.png,a||b\n", "`labels` must hold different .*in line 3"),
        ("file,labels\n1.png,a|b|a\n", r"`labels` must hold different .*'a\|b\|a'.* in line 2"),
        ("file,labels\n1.png,\n2.png,\n", "must name a class for at least one image. .*labels.csv"),
    ],
)
def test_table_rejects(table: Callable[[str], Path], text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load_table(table(text))


def test_imagenet_sample(test_data: Path) -> None:
    examples = load_table(test_data / "data" / "imagenet_sample" / "labels.csv")
    assert len(examples) == 200
    assert len(examples.class_names) == 1000
    assert examples.class_names[examples.labels[0]] == "jeep"


def test_labels_name_all_that_an_image_shows(table: Callable[[str], Path]) -> None:
    path = table("file,labels\nsub/3.png,rose | daisy\n1.png,\n2.png,tulip\n")
    examples = load_table(path)
    assert examples.class_names == ("daisy", "rose", "tulip")
    assert examples.labels.tolist() == [[1, 1, 0], [0, 0, 0], [0, 0, 1]]
    assert examples.names == ("sub/3.png", "1.png", "2.png")


def test_one_label_stays_one_whatever_it_contains(table: Callable[[str], Path]) -> None:
    examples = load_table(table("file,label,labels\n1.png,a|b,x\n2.png,c,y|z\n"))
    assert not examples.multi_label
    assert examples.class_names == ("a|b", "c")
