//! Programs that a comparison starts. None outlives it: each is ended with its
//! handle, and the kernel ends it when the comparison dies otherwise. To arrange
//! that without code between fork and exec, this program starts itself with the
//! hidden command `child`, which prepares itself and becomes the other program.

use clap::Args;
use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::error::Error;
use std::ffi::OsString;
use std::io::{self, BufRead, BufReader};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Time in which a program must listen.
const START_TIME: Duration = Duration::from_secs(15);
/// Pause between two looks at a program that starts.
const LOOK_TIME: Duration = Duration::from_millis(10);
/// Last lines of a program that are kept for messages.
const LINES_KEPT: usize = 20;

/// Arguments of the hidden command.
#[derive(Debug, Args)]
pub struct ChildArguments {
    /// Process that must live
    #[arg(long)]
    parent: i32,
    /// Core to run on
    #[arg(long)]
    core: Option<usize>,
    /// Program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    program: Vec<OsString>,
}

/// Becomes the program. Returns only when that is not possible.
pub fn child(arguments: &ChildArguments) -> Result<bool, Box<dyn Error>> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    if getppid().map(Pid::as_raw_nonzero) != std::num::NonZero::new(arguments.parent) {
        // It ended before the kernel was told.
        return Ok(false);
    }
    if let Some(core) = arguments.core {
        let mut cores = CpuSet::new();
        cores.set(core);
        sched_setaffinity(None, &cores)?;
    }
    let Some((program, rest)) = arguments.program.split_first() else {
        return Ok(false);
    };
    Err(Command::new(program).args(rest).exec().into())
}

/// Cores that this process may use.
pub fn cores() -> io::Result<Vec<usize>> {
    let set = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU)
        .filter(|&core| set.is_set(core))
        .collect())
}

/// A program of this name: where `PATH` says, or where Debian keeps daemons.
pub fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin", "/usr/local/sbin"].map(PathBuf::from))
        .map(|directory| directory.join(name))
        .find(|file| file.is_file())
}

/// A port that was free a moment ago.
pub fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// A program under way, ended when dropped.
pub struct Running {
    name: String,
    process: Child,
    lines: Receiver<String>,
    last: Arc<Mutex<Vec<String>>>,
}

impl Running {
    /// Starts a program on a core. Must be called on the main thread: the kernel
    /// watches the thread that starts it. `stdout` or else standard error is read.
    pub fn start(
        name: &str,
        program: &Path,
        arguments: &[&str],
        core: Option<usize>,
        stdout: bool,
    ) -> Result<Self, String> {
        let own = std::env::current_exe().map_err(|error| error.to_string())?;
        let mut command = Command::new(own);
        command.args(["child", "--parent", &std::process::id().to_string()]);
        if let Some(core) = core {
            command.args(["--core", &core.to_string()]);
        }
        command.arg("--").arg(program).args(arguments);
        command.stdin(Stdio::null());
        if stdout {
            command.stdout(Stdio::piped()).stderr(Stdio::inherit());
        } else {
            command.stdout(Stdio::null()).stderr(Stdio::piped());
        }
        let mut process = command
            .spawn()
            .map_err(|error| format!("cannot start {name}: {error}"))?;
        let output: Box<dyn io::Read + Send> = match (process.stdout.take(), process.stderr.take())
        {
            (Some(output), _) => Box::new(output),
            (None, Some(output)) => Box::new(output),
            (None, None) => Box::new(io::empty()),
        };
        let (line, lines) = mpsc::channel();
        let last = Arc::new(Mutex::new(Vec::new()));
        let kept = last.clone();
        // Ends with the program, whose output it reads so that it never blocks.
        std::thread::spawn(move || {
            for text in BufReader::new(output).lines().map_while(Result::ok) {
                if let Ok(mut kept) = kept.lock() {
                    if kept.len() == LINES_KEPT {
                        kept.remove(0);
                    }
                    kept.push(text.clone());
                }
                let _ = line.send(text);
            }
        });
        Ok(Self {
            name: name.to_owned(),
            process,
            lines,
            last,
        })
    }

    /// Whether it ended, and what it said last.
    pub fn check(&mut self) -> Result<(), String> {
        match self.process.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => {
                // The reader may be a moment behind.
                std::thread::sleep(LOOK_TIME);
                let last = self
                    .last
                    .lock()
                    .map(|last| last.join("\n"))
                    .unwrap_or_default();
                Err(format!("{} ended ({status}): {last}", self.name))
            }
            Err(error) => Err(format!("{}: {error}", self.name)),
        }
    }

    /// Waits for a line that `wanted` makes something of.
    pub fn wait_for<T>(&mut self, wanted: impl Fn(&str) -> Option<T>) -> Result<T, String> {
        let give_up = Instant::now() + START_TIME;
        loop {
            if let Ok(line) = self.lines.recv_timeout(LOOK_TIME) {
                if let Some(found) = wanted(&line) {
                    return Ok(found);
                }
                continue;
            }
            self.check()?;
            if Instant::now() >= give_up {
                return Err(format!("{} did not start within {START_TIME:?}", self.name));
            }
        }
    }

    /// Waits until it accepts connections.
    pub fn wait_for_port(&mut self, address: SocketAddr) -> Result<(), String> {
        let give_up = Instant::now() + START_TIME;
        while TcpStream::connect(address).is_err() {
            self.check()?;
            if Instant::now() >= give_up {
                return Err(format!("{} does not listen on {address}", self.name));
            }
            std::thread::sleep(LOOK_TIME);
        }
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
