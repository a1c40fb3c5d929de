//! The stages of `tuning/tune` against a host of their own: a tree of files
//! with what /proc, /sys and /etc hold. Whatever is applied is undone to the octet.
#![allow(missing_docs)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

struct Host {
    root: tempfile::TempDir,
}

impl Host {
    fn new() -> Self {
        let host = Self {
            root: tempfile::tempdir().unwrap(),
        };
        for (path, value) in [
            ("proc/cmdline", "console=ttyS0\n"),
            ("proc/net/route", "Iface\tDestination\neth7\t00000000\n"),
            ("proc/sys/net/core/somaxconn", "128\n"),
            ("proc/sys/net/ipv4/tcp_max_syn_backlog", "9000\n"),
            ("proc/sys/net/core/rmem_max", "212992\n"),
            ("proc/sys/net/ipv4/tcp_rmem", "8192\t131072\t6291456\n"),
            ("proc/sys/net/ipv4/tcp_slow_start_after_idle", "1\n"),
            ("proc/sys/kernel/io_uring_disabled", "0\n"),
            ("proc/irq/31/smp_affinity_list", "0-39\n"),
            ("sys/class/net/eth7/device/msi_irqs/31", ""),
            ("sys/class/net/eth7/queues/rx-0/rps_cpus", "00,00000000\n"),
            ("sys/devices/system/cpu/online", "0-39\n"),
            (
                "sys/kernel/mm/transparent_hugepage/enabled",
                "[always] madvise never\n",
            ),
        ] {
            let path = host.root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, value).unwrap();
        }
        host
    }

    fn tune(&self, arguments: &[&str]) -> Output {
        Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("tuning/tune"))
            .args(arguments)
            .env("NPAMP_TUNING_ROOT", self.root.path())
            .env_remove("NPAMP_TUNING_STATE")
            .output()
            .unwrap()
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.root.path().join(path)).unwrap()
    }

    /// Every file, with white space as one space: values are written back, not their padding.
    fn all(&self) -> BTreeMap<PathBuf, String> {
        fn walk(folder: &Path, into: &mut BTreeMap<PathBuf, String>) {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    walk(&path, into);
                } else {
                    let text = fs::read_to_string(&path).unwrap();
                    let words: Vec<_> = text.split_whitespace().collect();
                    into.insert(path, words.join(" "));
                }
            }
        }
        let mut all = BTreeMap::new();
        walk(self.root.path(), &mut all);
        all
    }
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// The stages that are files alone; `nic` asks the host's own ethtool.
const STAGES: [&str; 5] = ["memlock", "cpuset", "irq", "sysctl", "hugepages"];

fn with<'a>(command: &'a str, options: &[&'a str]) -> Vec<&'a str> {
    [&[command][..], &STAGES, options].concat()
}

#[test]
fn what_is_applied_is_as_wanted_and_reverts_to_what_was() {
    let host = Host::new();
    let before = host.all();
    let options = ["--cpus", "2-3,33", "--profile", "throughput"];

    let found = host.tune(&with("check", &options));
    assert_eq!(found.status.code(), Some(1), "{}", text(&found));
    assert_eq!(host.all(), before, "checking changes nothing");

    let applied = host.tune(&with("apply", &options));
    // A choice is written as a word and read in brackets by the kernel, which this host is not.
    assert_eq!(applied.status.code(), Some(0), "{}", text(&applied));
    assert_eq!(host.read("proc/sys/net/core/somaxconn"), "4096\n");
    assert_eq!(
        host.read("proc/sys/net/ipv4/tcp_max_syn_backlog"),
        "9000\n",
        "never lowered"
    );
    assert_eq!(
        host.read("proc/sys/net/ipv4/tcp_rmem"),
        "8192 131072 33554432\n",
        "each number by itself"
    );
    assert_eq!(
        host.read("proc/irq/31/smp_affinity_list")
            .matches(',')
            .count(),
        36,
        "40 cores less three"
    );
    assert_eq!(
        host.read("sys/class/net/eth7/queues/rx-0/rps_cpus"),
        "fd,fffffff3\n"
    );
    assert_eq!(
        host.read("sys/kernel/mm/transparent_hugepage/enabled"),
        "madvise\n"
    );
    assert!(
        host.read("etc/systemd/system/npamp-relay.service.d/90-cores.conf")
            .contains("AllowedCPUs=2,3,33\n")
    );
    assert!(
        host.read("etc/sysctl.d/90-npamp-relay.conf")
            .contains("net.ipv4.tcp_max_syn_backlog = 9000\n"),
        "the next start does not lower it either"
    );

    let stages = ["memlock", "cpuset", "irq", "sysctl"];
    let again = host.tune(&[&["check"][..], &stages, &options].concat());
    assert_eq!(again.status.code(), Some(0), "{}", text(&again));
    // A second time, with other wishes: what is saved stays the first.
    let other = ["--cpus", "5", "--profile", "many-connections"];
    assert_eq!(host.tune(&with("apply", &other)).status.code(), Some(0));

    let reverted = host.tune(&["revert"]);
    assert_eq!(reverted.status.code(), Some(0), "{}", text(&reverted));
    let mut after = host.all();
    let choice = host
        .root
        .path()
        .join("sys/kernel/mm/transparent_hugepage/enabled");
    assert_eq!(
        after
            .insert(choice.clone(), before[&choice].clone())
            .unwrap(),
        "always"
    );
    assert_eq!(after, before);
    assert!(text(&host.tune(&["revert"])).contains("nothing was applied"));
}

#[test]
fn what_cannot_be_set_is_said_and_nothing_else_is_lost() {
    let host = Host::new();
    let file = host.root.path().join("etc/sysctl.d");
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(&file, "in the way").unwrap();
    let applied = host.tune(&["apply", "sysctl"]);
    assert_eq!(applied.status.code(), Some(1));
    assert!(text(&applied).contains("FAILED  /etc/sysctl.d/90-npamp-relay.conf"));
    assert_eq!(host.read("proc/sys/net/core/somaxconn"), "4096\n");
}

#[test]
fn every_stage_and_every_profile_speaks() {
    let host = Host::new();
    for profile in ["throughput", "latency", "many-connections"] {
        let checked = host.tune(&["check", "sysctl", "--profile", profile]);
        assert_eq!(checked.status.code(), Some(1), "{}", text(&checked));
    }
    for stage in STAGES.iter().chain(&["nic"]) {
        let explained = host.tune(&["explain", stage]);
        assert_eq!(explained.status.code(), Some(0));
        assert!(text(&explained).contains("See:"), "{stage}");
    }
}

#[test]
fn wrong_arguments_end_with_two() {
    let host = Host::new();
    for wrong in [
        &[][..],
        &["tighten"],
        &["check", "disk"],
        &["check", "--profile", "../lib"],
        &["check", "--profile"],
        &["check", "--cpus", "all"],
        &["check", "--nic", "a b"],
        &["apply", "--service", "../x"],
        &["check", "--fast"],
    ] {
        let output = host.tune(wrong);
        assert_eq!(output.status.code(), Some(2), "{wrong:?}");
        assert!(text(&output).contains("tune:"), "{wrong:?}");
    }
    assert_eq!(host.tune(&["--help"]).status.code(), Some(0));
}
