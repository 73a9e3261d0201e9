//! The status page of a real daemon in browsers: Chromium, and lynx and w3m at 80 columns (Debian's chromium, lynx and w3m).

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::sync::Arc;

use podprobe::engine::shims::RuntimeChoice;
use podprobe::face::views::PodView;
use serde_json::json;

use crate::support;
use crate::support::Node;
use crate::support::daemon::{Day, FOREVER};
use crate::support::netns::on_a_machine;

/// The usual one, on a machine of the test's own.
const PORT: u16 = 10255;

#[test]
fn the_page_shows_in_browsers() {
    on_a_machine(|_| support::on(RuntimeChoice::Embedded, page_in_browsers));
}

/// A daemon with this read-only port.
fn begin(node: &Node) -> Day<'_> {
    let config = node.layout.config_file();
    fs::create_dir_all(config.parent().unwrap()).unwrap();
    let content = json!({"healthzBindAddress": "", "healthzPort": 0, "readOnlyPort": PORT});
    fs::write(config, content.to_string()).unwrap();
    Day::begin(node)
}

/// What a browser prints; None where it is not installed and need not be. A browser that a signal ends, as Chromium does on a busy
/// machine, says nothing about the page: it is asked again.
fn output(program: &str, words: &[&str]) -> Option<String> {
    let mut tries = 0..5;
    loop {
        let run = Command::new(program)
            .args(words)
            .env("LC_ALL", "C.UTF-8")
            .stdin(Stdio::null())
            .output();
        match run {
            Ok(output) if output.status.signal().is_some() && tries.next().is_some() => {}
            Ok(output) => {
                assert!(output.status.success(), "{program}: {output:?}");
                return Some(String::from_utf8_lossy(&output.stdout).into_owned());
            }
            Err(_) => {
                support::skip::skip(&format!("needs {program} of Debian's {program}"));
                return None;
            }
        }
    }
}

fn page_in_browsers(node: &Node) {
    let day = begin(node);
    let probe = json!({"exec": {"command": ["sh", "-c", "true"]}, "periodSeconds": 1});
    day.put(
        "web",
        day.pod("web", FOREVER, json!({"readinessProbe": probe})),
    );
    let failing =
        json!({"exec": {"command": ["sh", "-c", "echo '<b>no</b>'; exit 1"]}, "periodSeconds": 1});
    day.put(
        "ill",
        day.pod("ill", FOREVER, json!({"readinessProbe": failing})),
    );
    // Its pod is ready at once and counts as available in an hour.
    let mut template = day.pod("shop", FOREVER, json!({}));
    let template =
        json!({"metadata": {"labels": {"app": "shop"}}, "spec": template["spec"].take()});
    let spec = json!({"replicas": 1, "minReadySeconds": 3600, "progressDeadlineSeconds": 3700,
        "selector": {"matchLabels": {"app": "shop"}}, "template": template});
    day.put(
        "shop",
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "shop"}, "spec": spec}),
    );
    fs::write(
        node.layout.pods_dir().join("bad.yaml"),
        "kind: Pod\nspec: 7\n",
    )
    .unwrap();
    day.wait_ready("web");
    day.wait("the pod of the Deployment to be ready", |s| {
        let name = |p: &PodView| p.object["metadata"]["name"].as_str().map(str::to_owned);
        let of_shop = |p: &&Arc<PodView>| name(p).is_some_and(|name| name.starts_with("shop-"));
        let mut pods = s.pods.iter().filter(of_shop);
        pods.any(|p| p.status.is_ready()).then_some(())
    });
    day.wait_event("ill", "Unhealthy");
    day.wait("the file to be refused", |s| {
        (!s.problems.is_empty()).then_some(())
    });
    let url = format!("http://127.0.0.1:{PORT}/");

    for (program, words) in [
        (
            "lynx",
            &["-dump", "-width=80", "-display_charset=UTF-8", &url][..],
        ),
        ("w3m", &["-dump", "-cols", "80", "-O", "UTF-8", &url]),
    ] {
        let Some(text) = output(program, words) else {
            continue;
        };
        let line = |what: &str| {
            let mut lines = text.lines().filter(|line| line.contains(what));
            lines
                .next()
                .unwrap_or_else(|| panic!("{what}: {text}"))
                .to_owned()
        };
        assert!(
            text.contains("Not all is well: 2 things are wrong."),
            "{program}: {text}"
        );
        assert_eq!(
            line("describe pod").trim(),
            "podprobe describe pod ill-edge"
        );
        // the row is one line still: a table that does not fit has a line for each cell
        let row = line("web-edge ");
        assert!(
            row.contains("1/1") && row.contains("Running"),
            "{program}: {text}"
        );
        // A heading of its own, the numbers beside the name, and each sentence below it on lines that fit.
        assert!(
            text.lines().any(|line| line.trim() == "Workloads"),
            "{program}: {text}"
        );
        assert!(
            line("deployment/shop").contains("1/1 ready"),
            "{program}: {text}"
        );
        let flowing = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            flowing.contains("Waiting for deployment \"shop\" rollout to finish: 0 of 1 updated replicas are available"),
            "{program}: {text}"
        );
        let row = line("web-edge/c ");
        assert!(
            row.contains("readiness") && row.contains('▇'),
            "{program}: {text}"
        );
        assert!(line("ill-edge/c ").contains('×'), "{program}: {text}");
        assert!(text.contains("<b>no</b>"), "{program}: {text}");
        let widest = text.lines().map(|line| line.chars().count()).max();
        assert!(widest <= Some(80), "{program}: {text}");
    }

    let profile = format!(
        "--user-data-dir={}",
        node.dir.path().join("chromium").display()
    );
    let picture = node.dir.path().join("page.png");
    let shot = format!("--screenshot={}", picture.display());
    let common = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        &profile,
    ];
    let chromium = |words: &[&str]| output("chromium", &[&common[..], words, &[&url]].concat());
    if let Some(dom) = chromium(&["--dump-dom"]) {
        assert!(dom.contains("<h1>podprobe on edge</h1>"), "{dom}");
        // The sentences belong to their name also for a screen reader: a list of terms and descriptions.
        let term = "<h2>Workloads</h2>\n<dl>\n<dt>deployment/shop ";
        assert!(dom.contains(term), "{dom}");
        assert!(
            dom.contains("&lt;b&gt;no&lt;/b&gt;") && !dom.contains("<b>"),
            "{dom}"
        );
        chromium(&["--window-size=1000,1200", &shot]);
        // A page of one colour is a tenth of this.
        let size = fs::metadata(&picture).unwrap().len();
        assert!(size > 30_000, "{size} bytes");
    }
    if let Some(kept) = std::env::var_os("PODPROBE_PAGE_PICTURE").filter(|_| picture.exists()) {
        fs::copy(&picture, kept).unwrap();
    }
    day.end();
}
