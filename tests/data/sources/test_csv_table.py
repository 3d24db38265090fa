from __future__ import annotations

import random
import unicodedata
from collections.abc import Callable
from pathlib import Path

import pytest

from keras_vit.data.sources.csv_table import load_table
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
    assert examples.targets.tolist() == [1, 0, 1]
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
    assert examples.targets.tolist() == [985, 0]
    assert examples.class_names == imagenet_labels()


def test_class_index_orders_labels_of_ones_own(table: Callable[[str], Path]) -> None:
    path = table("file,class_index,label\n1.png,1,ant\n2.png,0,bee\nsub/3.png,1,ant\n")
    examples = load_table(path)
    assert examples.class_names == ("bee", "ant")
    assert examples.targets.tolist() == [1, 0, 1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "must contain at least one image."),
        ("name,label\na,b\n", r"must have a header line .*columns \['name', 'label'\]"),
        ("file,kind,site\n1.png,a,b\n", "one of the columns class_index, wnid, label, labels; re"),
        ("file,label\n1.png,a\n3.pgn,b\n", r"first in line 3 \(the closest name is 'sub/3.png'\)"),
        ("file,label\n", "must contain at least one image."),
        (
            "file,label\n1.png,a\n2.png,b\n1.png,b\n",
            "appear only once in the table. .*'1.png' in lines 2 and 4",
        ),
        (
            "file,label\n1.png,a\n0.png,b\n",
            r"must exist; paths are relative to .*Received: 1 missing files, .*\['0.png'\]",
        ),
        ("file,label\n1.png,a\n2.png,\n", "`label` must not be empty. .*in line 3"),
        ("file,label\n1.png,a\n2.png\n", "`label` must not be empty. .*in line 3"),
        ("file,wnid\n1.png,n00000000\n", "`wnid` must be one of .*'n00000000'.* in line 2"),
        (
            "file,class_index\n1.png,1000\n",
            "`class_index` must be an ImageNet-1k class from.*'1000'",
        ),
        ("file,class_index\n1.png,-1\n", "`class_index` must be a non-negative integer.*'-1'"),
        ("file,class_index,wnid\n1.png,1,n01440764\n", "and match `wnid`. .*n01440764"),
        ("file,class_index,label\n1.png,0,a\n2.png,2,b\n", "without gaps,.*Received: .*2, 'b'"),
        (
            "file,class_index,label\n1.png,0,a\n2.png,0,b\n",
            "gaps, with one `label` per index. If you remove",
        ),
        (
            "file,class_index,label\n1.png,0,a\n2.png,1,a\n",
            "gaps, with one `label` per index. If you remove",
        ),
        ("file,class_index\n1.png," + "9" * 5000, "`class_index` must be a non-negative integer"),
        (
            "file,label\n1.png,a\n,b\n",
            "`file` must be a path relative to the table, .*Received: '' in line 3 of",
        ),
        ("gs://x/1.png,a\n", "images .*Received: 'gs://x/1.png' in line 1 of"),
        ("file,label\nhttps://x/1.png,a\n", "images .*'https://x/1.png' in line 2 of"),
        ("file,label\nS3://x/1.png,a\n", "images .*'S3://x/1.png' in line 2 of"),
        ('file,label\n1.png,"a\n2.png,b"\n', "line break; .*in line 2 of"),
        ("file,label,split\n1.png,a,train\n2.png,b,fold 1\n", "`split` must.*'fold 1' in line 3"),
        ("file,label,split\n1.png,a,train\n2.png,b,eval\n", "one of train, training, val.*'eval'"),
        ("file,label,split\n1.png,a,test\n2.png,b,\n", "`split` must.*Received: '' in line 3 of"),
        ("file,label,split\n1.png,a,dev\n2.png,b,test\n", "must be train in at least one row"),
        ("file,label,split\n1.png,a,\n2.png,b,\n", "must be train in at least one row"),
        (
            "sub\\3.png,a\nsub/3.png,b\n",
            "appear only once in the table. .*'sub/3.png' in lines 1 and 2",
        ),
        ("file,labels\n1.png,a\n2.png,a||b\n", "`labels` must contain different .*in line 3"),
        ("file,labels\n1.png,a|b|a\n", r"`labels` must contain different .*'a\|b\|a'.* in line 2"),
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
    assert examples.class_names[examples.targets[0]] == "jeep"


def test_labels_name_all_that_an_image_shows(table: Callable[[str], Path]) -> None:
    path = table("file,labels\nsub/3.png,rose | daisy\n1.png,\n2.png,tulip\n")
    examples = load_table(path)
    assert examples.class_names == ("daisy", "rose", "tulip")
    assert examples.targets.tolist() == [[1, 1, 0], [0, 0, 0], [0, 0, 1]]
    assert examples.names == ("sub/3.png", "1.png", "2.png")


def test_names_of_several_words_are_whole(table: Callable[[str], Path]) -> None:
    path = table("file,red fox,red,fox\n1.png,1,0,0\n2.png,0,1,0\nsub/3.png,0,0,0\n")
    assert load_table(path).class_names == ("red", "red fox")
    path = table("file,labels\n1.png,apple scab\n2.png,apple rust\nsub/3.png,scab\n")
    assert load_table(path).class_names == ("apple rust", "apple scab", "scab")
    path = table("file,apple scab,apple rust,ok\n1.png,1,0,0\n2.png,0,1,0\nsub/3.png,0,0,0\n")
    assert load_table(path).class_names == ("apple rust", "apple scab")


def test_one_label_stays_one_whatever_it_contains(table: Callable[[str], Path]) -> None:
    examples = load_table(table("file,label,labels\n1.png,a|b,x\n2.png,c,y|z\n"))
    assert not examples.multi_label
    assert examples.class_names == ("a|b", "c")


def test_split_divides_the_images(table: Callable[[str], Path]) -> None:
    path = table("file,label,Split,camera\n1.png,a,TRAIN,x\n2.png,b,Val,y\nsub/3.png,a,testing,z\n")
    examples = load_table(path)
    assert examples.splits == ("train", "validation", "test")
    assert examples.columns == {"camera": ("x", "y", "z")}
    assert examples.notes == ()


@pytest.mark.parametrize("last", ["training", ""])
def test_training_images_alone_are_not_divided(table: Callable[[str], Path], last: str) -> None:
    examples = load_table(table(f"file,label,split\n1.png,a,train\n2.png,b,{last}\n"))
    assert examples.splits is None
    assert examples.columns == {}


def test_backslashes_are_slashes_where_the_file_exists_so(table: Callable[[str], Path]) -> None:
    path = table("file,label\nsub\\3.png,a\nsub\\4.png,b\n1.png,a\n")
    (path.parent / "sub\\4.png").write_bytes(b"")
    examples = load_table(path)
    assert examples.names == ("sub/3.png", "sub\\4.png", "1.png")
    assert examples.notes == (
        "File names read with / instead of \\, in another case or Unicode form: "
        "1 of 3 names in labels.csv.",
    )


@pytest.mark.parametrize(("stored", "written"), [("NFC", "NFD"), ("NFD", "NFC")])
def test_either_unicode_form_names_the_file(
    table: Callable[[str], Path], stored: str, written: str
) -> None:
    name = unicodedata.normalize(stored, "Bär.png")
    path = table(f"file,label\n{unicodedata.normalize(written, name)},a\n1.png,b\n")
    (path.parent / name).write_bytes(b"bear")
    examples = load_table(path)
    assert examples.names[0] == name
    assert examples.read(0) == b"bear"
    assert len(examples.notes) == 1


def test_images_elsewhere_are_counted(table: Callable[[str], Path]) -> None:
    inside = table("").parent
    beside = inside / "tables" / "t.csv"
    beside.parent.mkdir()
    (beside.parent / "..a.png").write_bytes(b"")
    beside.write_text(
        f"file,label\n../1.png,a\n{inside / '2.png'},b\n..a.png,a\n{beside.parent}/../sub/3.png,a\n"
    )
    examples = load_table(beside)
    assert examples.notes == (f"3 images lie outside of {beside.parent}.",)
    assert examples.read(1) == (inside / "2.png").read_bytes()
    beside.write_text(f"file,label\n../1.png,a\n{beside.parent}/..a.png,a\n")
    assert load_table(beside).notes == (f"1 image lies outside of {beside.parent}.",)


@pytest.mark.parametrize("place", ["rose/", "ROSE/", "{folder}/rose/"])
def test_a_missing_image_is_not_replaced_by_that_of_another_folder(
    place: str, table: Callable[[str], Path], write: Callable[..., Path]
) -> None:
    path = table("")
    write(path.parent, ["daisy/5.png", "rose/6.png"])
    path.write_text(f"file,label\n{place.format(folder=path.parent)}5.png,a\n/other/6.png,b\n")
    with pytest.raises(ValueError, match=r"Received: 1 missing files, starting with .*5.png"):
        load_table(path)


def test_images_are_found_in_linked_folders(tmp_path: Path, write: Callable[..., Path]) -> None:
    write(tmp_path, ["big/train/1.png", "big/train/2.png", "data/images/3.png"])
    folder = tmp_path / "data"
    (folder / "train").symlink_to(tmp_path / "big/train")
    (folder / "all").symlink_to(folder / "images")
    (tmp_path / "big/train/back").symlink_to(tmp_path / "big")
    path = folder / "train.csv"
    path.write_text("id,breed\n1,a\n2,b\n3,a\n")
    assert load_table(path).names == ("train/1.png", "train/2.png", "images/3.png")


def test_a_name_is_not_completed_by_the_folder_of_another_split(
    tmp_path: Path, write: Callable[..., Path]
) -> None:
    write(tmp_path, ["train/3.png", "test/4.png", "test_5.png"])
    path = tmp_path / "train.csv"
    path.write_text("id,breed\n3,a\n4,b\n")
    with pytest.raises(ValueError, match=r"1 missing files, starting with \['4'\]"):
        load_table(path)
    path.write_text("id,breed\n3,a\ntest/4,b\ntest_5,a\n")
    assert load_table(path).names == ("train/3.png", "test/4.png", "test_5.png")
    path.write_text("id,breed,split\n3,a,train\n4,b,test\n")
    assert load_table(path).names == ("train/3.png", "test/4.png")
    path = path.rename(tmp_path / "val.csv")
    path.write_text("id,breed\n3,a\n")  # held-out images are often left in train/
    assert load_table(path).names == ("train/3.png",)


def test_name_that_is_too_long_is_missing(table: Callable[[str], Path]) -> None:
    with pytest.raises(ValueError, match="1 missing"):
        load_table(table(f"file,label\n1.png,a\n{'x' * 5000},b\n"))


def random_table(generator: random.Random) -> tuple[bytes, int]:
    """Returns a table of the images 1.png, 2.png, sub/3.png, perhaps damaged, and its rows."""
    files = generator.sample(["1.png", "2.png", "sub/3.png"], generator.randint(0, 3))
    if generator.random() < 0.1:
        files.append(generator.choice(["0.png", "1.png", "../1.png", "http://x/1.png"]))
    delimiter = generator.choice(",;\t")
    extra = generator.random() < 0.5
    lines = []
    for file in files:
        cells = [
            file.replace("/", generator.choice("/\\")),
            generator.choice(["a", "Bär", "c d", "c"] + [""] * (generator.random() < 0.2)),
        ]
        cells += [generator.choice(["train", "val", "train", "val", "test", "x"])] * extra
        cells += ["more"] * (generator.random() < 0.03)
        cells = [f'"{cell}"' if generator.random() < 0.2 else cell for cell in cells]
        lines.append(delimiter.join(cells))
    header = generator.choice(
        ["file,label", "File, Class", "path,label", "file,label", "file,file", "a,b", ""]
    )
    if header:
        header += generator.choice([",split", ",camera"]) * extra
        lines.insert(0, header.replace(",", delimiter))
    content = (
        generator.choice(["\n", "\r\n", "\n\n", "\r"])
        .join(lines)
        .encode(generator.choice(["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "latin-1"]))
    )
    for _ in range(generator.choice([0, 0, 0, 1, 3])):
        at = generator.randint(0, len(content))
        new = generator.choice([b"\0", b'"', b",", generator.randbytes(2)])
        content = content[:at] + new + content[at + generator.randint(0, 1) :]
    return content, len(files)


def test_any_table_is_read_in_full_or_refused(table: Callable[[str], Path]) -> None:
    path = table("")
    read = 0
    for seed in range(300):
        content, rows = random_table(random.Random(seed))
        path.write_bytes(content)
        try:
            assert len(load_table(path)) == rows, (seed, content)
            read += 1
        except ValueError as error:
            if str(path) not in str(error) or len(str(error)) > 1000:
                pytest.fail(f"{seed}: {error}")
    assert 60 < read < 240
