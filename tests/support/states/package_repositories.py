"""Small real package repositories, and empty system roots to install from them into, for tests."""

from __future__ import annotations

import hashlib
import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Deb:
    """One tiny Debian package: a file that says its version, and a configuration file."""

    name: str
    version: str = "1.0"
    depends: str = ""
    provides: str = ""
    conflicts: str = ""


def apt_repository(folder: Path, *packages: Deb) -> Path:
    """A flat repository of real .deb files, readable by `deb [trusted=yes] file:FOLDER ./`."""
    folder.mkdir(parents=True, exist_ok=True)
    index = []
    for package in packages:
        build = folder / f".build-{package.name}-{package.version}"
        (build / "DEBIAN").mkdir(parents=True)
        share = build / "usr" / "share" / package.name
        share.mkdir(parents=True)
        (share / "version").write_text(package.version)
        (build / "etc").mkdir()
        (build / "etc" / f"{package.name}.conf").write_text("x\n")
        (build / "DEBIAN" / "conffiles").write_text(f"/etc/{package.name}.conf\n")
        fields = {
            "Package": package.name,
            "Version": package.version,
            "Architecture": "all",
            "Maintainer": "Tests <tests@example.org>",
            "Depends": package.depends,
            "Provides": package.provides,
            "Conflicts": package.conflicts,
            "Description": "made by a test",
        }
        control = "".join(f"{key}: {value}\n" for key, value in fields.items() if value)
        (build / "DEBIAN" / "control").write_text(control)
        file = folder / f"{package.name}_{package.version.replace(':', '_')}_all.deb"
        subprocess.run(
            ["dpkg-deb", "--build", "--root-owner-group", "-Znone", str(build), str(file)],
            check=True,
            capture_output=True,
        )
        subprocess.run(["rm", "-r", str(build)], check=True)
        content = file.read_bytes()
        digest = hashlib.sha256(content).hexdigest()
        index.append(f"{control}Filename: ./{file.name}\nSize: {len(content)}\nSHA256: {digest}\n")
    (folder / "Packages").write_text("\n".join(index))
    return folder


def apt_root(folder: Path, *repositories: Path) -> Path:
    """An empty system that apt can work on with its Dir set to it."""
    for name in (
        "var/lib/dpkg/info",
        "var/lib/dpkg/updates",
        "var/lib/apt/lists/partial",
        "var/cache/apt/archives/partial",
        "var/log/apt",
        "etc/apt/sources.list.d",
        "etc/apt/preferences.d",
        "etc/apt/apt.conf.d",
        "etc/apt/trusted.gpg.d",
    ):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "var/lib/dpkg/status").touch()
    sources = "".join(f"deb [trusted=yes] file:{repository} ./\n" for repository in repositories)
    (folder / "etc/apt/sources.list").write_text(sources)
    return folder


def sign_apt_repository(folder: Path, home: Path) -> str:
    """Make a key in `home`, write Release and InRelease signed by it, and give the armoured public key."""
    home.mkdir(mode=0o700)
    gpg = ["gpg", "--homedir", str(home), "--batch", "--quiet", "--yes", "--pinentry-mode", "loopback"]
    key = ["--passphrase", "", "--quick-generate-key", "tests@example.org", "ed25519", "sign", "never"]
    subprocess.run([*gpg, *key], check=True, capture_output=True)
    index = (folder / "Packages").read_bytes()
    line = f"{hashlib.sha256(index).hexdigest()} {len(index)} Packages"
    (folder / "Release").write_text(f"Suite: ./\nDate: Sat, 01 Jan 2022 00:00:00 UTC\nSHA256:\n {line}\n")
    sign = ["--clearsign", "--output", str(folder / "InRelease"), str(folder / "Release")]
    subprocess.run([*gpg, "--passphrase", "", *sign], check=True, capture_output=True)
    exported = subprocess.run([*gpg, "--armor", "--export"], check=True, capture_output=True, text=True)
    subprocess.run(["gpgconf", "--homedir", str(home), "--kill", "all"], check=True, capture_output=True)
    return exported.stdout


SPEC = """
Name: {name}
Version: {version}
Release: 1
Summary: made by a test
License: none
BuildArch: noarch
{depends}
%description
made by a test
%install
mkdir -p %{{buildroot}}/usr/share/{name}
echo {version} > %{{buildroot}}/usr/share/{name}/version
%files
/usr/share/{name}
"""


def rpm_repository(folder: Path, *packages: Deb) -> Path:
    """A repository of real .rpm files with metadata by createrepo_c."""
    folder.mkdir(parents=True, exist_ok=True)
    for package in packages:
        spec = folder / f"{package.name}-{package.version}.spec"
        depends = f"Requires: {package.depends}" if package.depends else ""
        spec.write_text(SPEC.format(name=package.name, version=package.version, depends=depends))
        define = ["--define", f"_topdir {folder}/build", "--define", f"_rpmdir {folder}"]
        subprocess.run(["rpmbuild", "-bb", "--quiet", *define, str(spec)], check=True, capture_output=True)
        spec.unlink()
    subprocess.run(["createrepo_c", "--quiet", str(folder)], check=True, capture_output=True)
    return folder


def dnf_root(folder: Path, *repositories: Path) -> Path:
    """An empty system that dnf can work on as its installroot, with caches and logs of its own."""
    (folder / "etc/dnf").mkdir(parents=True)
    (folder / "etc/yum.repos.d").mkdir()
    (folder / "etc/dnf/dnf.conf").write_text(
        f"[main]\ngpgcheck=0\nreposdir={folder}/etc/yum.repos.d\nplugins=0\ncachedir=/var/cache/dnf\n"
        "releasever=1\nkeepcache=0\nmetadata_expire=-1\n"
    )
    for number, repository in enumerate(repositories):
        text = f"[test{number}]\nname=test\nbaseurl=file://{repository}\nenabled=1\n"
        (folder / f"etc/yum.repos.d/test{number}.repo").write_text(text)
    return folder
