//! What the sample agent answers, in both versions.
use super::*;

fn v03(text: &str) -> Value {
    json!({ "message": {
        "kind": "message", "messageId": "m1", "role": "user",
        "parts": [{ "kind": "text", "text": text }],
    }})
}

fn v10(text: &str) -> Value {
    json!({ "message": { "messageId": "m1", "role": "ROLE_USER", "parts": [{ "text": text }] } })
}

fn agent() -> Agent {
    Agent::new("http://127.0.0.1:1/")
}

fn result(answer: Answer) -> Value {
    match answer {
        Answer::Result { result, .. } => result,
        other => panic!("{other:?}"),
    }
}

fn code(answer: Answer) -> i32 {
    match answer {
        Answer::Error(error) => error.code,
        other => panic!("{other:?}"),
    }
}

/// Everything a stream says, its task run to the end.
fn play(agent: &mut Agent, answer: Answer) -> Vec<Value> {
    let Answer::Stream {
        first,
        mut events,
        run,
    } = answer
    else {
        panic!("{answer:?}")
    };
    if let Some(task) = run {
        while agent.step(&task) {}
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let mut all = vec![first];
    loop {
        let (event, last) = runtime.block_on(events.next()).unwrap();
        all.push(event);
        if last {
            return all;
        }
    }
}

fn words(parts: &Value) -> String {
    let parts = parts.as_array().unwrap();
    parts
        .iter()
        .map(|part| part["text"].as_str().unwrap())
        .collect()
}

#[test]
fn unary_in_both_versions() {
    let mut agent = agent();
    let task = result(agent.handle("message/send", &v03("hello there")));
    assert_eq!(task["kind"], "task");
    assert_eq!(task["status"]["state"], "completed");
    assert_eq!(
        words(&task["artifacts"][0]["parts"]),
        "You said: hello there "
    );
    assert_eq!(task["history"][0]["kind"], "message");

    let answer = result(agent.handle("SendMessage", &v10("hello")));
    let task = &answer["task"];
    assert_eq!(task["status"]["state"], "TASK_STATE_COMPLETED");
    assert!(task.get("kind").is_none());
    assert_eq!(task["history"][0]["role"], "ROLE_USER");

    // A task made in one version can be read in the other.
    let read = result(agent.handle(
        "tasks/get",
        &json!({ "id": task["id"], "historyLength": 0 }),
    ));
    assert_eq!(read["status"]["state"], "completed");
    assert!(read.get("history").is_none());
}

#[test]
fn streams_end_as_their_version_says() {
    let mut agent = agent();
    let answer = agent.handle("message/stream", &v03("one two"));
    let events = play(&mut agent, answer);
    let kinds: Vec<&str> = events.iter().map(|e| e["kind"].as_str().unwrap()).collect();
    assert_eq!(
        kinds,
        [
            "task",
            "status-update",
            "artifact-update",
            "artifact-update",
            "artifact-update",
            "status-update"
        ]
    );
    let finals: Vec<bool> = events.iter().map(|e| e["final"] == json!(true)).collect();
    assert_eq!(finals.iter().filter(|f| **f).count(), 1);
    assert!(finals[5]);
    assert_eq!(events[2]["append"], false);
    assert_eq!(events[4]["lastChunk"], true);

    let answer = agent.handle("SendStreamingMessage", &v10("one two"));
    let events = play(&mut agent, answer);
    let members: Vec<&str> = events
        .iter()
        .map(|event| {
            let object = event.as_object().unwrap();
            assert_eq!(object.len(), 1, "exactly one member");
            object.keys().next().unwrap().as_str()
        })
        .collect();
    assert_eq!(
        members,
        [
            "task",
            "statusUpdate",
            "artifactUpdate",
            "artifactUpdate",
            "artifactUpdate",
            "statusUpdate"
        ]
    );
    assert!(!events[5].to_string().contains("final"));
}

#[test]
fn running_tasks_can_be_watched_and_canceled() {
    let mut agent = agent();
    let mut params = v10("a b c");
    params["configuration"] = json!({ "returnImmediately": true });
    let Answer::Result {
        result: answer,
        run: Some(task),
    } = agent.handle("SendMessage", &params)
    else {
        panic!()
    };
    assert_eq!(answer["task"]["status"]["state"], "TASK_STATE_SUBMITTED");
    assert!(agent.step(&task) && agent.step(&task));
    let id = json!({ "id": task });
    let watched = agent.handle("SubscribeToTask", &id);
    let watched_too = agent.handle("tasks/resubscribe", &id);
    let canceled = result(agent.handle("tasks/cancel", &id));
    assert_eq!(canceled["status"]["state"], "canceled");
    let events = play(&mut agent, watched);
    assert_eq!(events[0]["task"]["status"]["state"], "TASK_STATE_WORKING");
    assert_eq!(
        words(&events[0]["task"]["artifacts"][0]["parts"]),
        "You said: "
    );
    assert_eq!(
        events[1]["statusUpdate"]["status"]["state"],
        "TASK_STATE_CANCELED"
    );
    assert_eq!(events.len(), 2);
    assert_eq!(play(&mut agent, watched_too)[1]["final"], true);
    assert!(!agent.step(&task), "a canceled task does not go on");
    assert_eq!(code(agent.handle("CancelTask", &id)), -32002);
    assert_eq!(code(agent.handle("SubscribeToTask", &id)), -32004);
}

#[test]
fn messages_to_a_task() {
    let mut agent = agent();
    let mut params = v03("a");
    params["configuration"] = json!({ "blocking": false });
    let Answer::Result {
        result: task,
        run: Some(id),
    } = agent.handle("message/send", &params)
    else {
        panic!()
    };
    let mut more = v03("b");
    more["message"]["taskId"] = json!(id);
    more["message"]["contextId"] = json!("another");
    assert_eq!(code(agent.handle("message/send", &more)), -32602);
    more["message"]["contextId"] = task["contextId"].clone();
    let ended = result(agent.handle("message/send", &more));
    assert_eq!(ended["id"], json!(id));
    assert_eq!(words(&ended["artifacts"][0]["parts"]), "You said: a b ");
    assert_eq!(ended["history"].as_array().unwrap().len(), 2);
    assert_eq!(
        code(agent.handle("message/send", &more)),
        -32004,
        "it has ended"
    );
}

#[test]
fn listing() {
    let mut agent = agent();
    for text in ["a", "b", "c"] {
        agent.handle("SendMessage", &v10(text));
    }
    let page = result(agent.handle("ListTasks", &json!({ "pageSize": 2 })));
    assert_eq!(page["tasks"].as_array().unwrap().len(), 2);
    assert_eq!(page["totalSize"], 3);
    assert_eq!(
        page["tasks"][0]["history"][0]["parts"][0]["text"], "c",
        "the newest first"
    );
    assert!(page["tasks"][0].get("artifacts").is_none());
    let token = &page["nextPageToken"];
    let rest = result(agent.handle(
        "ListTasks",
        &json!({ "pageSize": 2, "pageToken": token, "includeArtifacts": true }),
    ));
    assert_eq!(rest["tasks"].as_array().unwrap().len(), 1);
    assert_eq!(rest["nextPageToken"], "");
    assert!(rest["tasks"][0].get("artifacts").is_some());
    let context = &page["tasks"][0]["contextId"];
    let one = result(agent.handle("ListTasks", &json!({ "contextId": context })));
    assert_eq!(one["totalSize"], 1);
    let none = result(agent.handle("ListTasks", &json!({ "status": "TASK_STATE_WORKING" })));
    assert_eq!(none["totalSize"], 0);
    for wrong in [
        json!({ "pageSize": 0 }),
        json!({ "pageToken": "x" }),
        json!({ "status": "x" }),
    ] {
        assert_eq!(code(agent.handle("ListTasks", &wrong)), -32602);
    }
}

#[test]
fn push_configurations() {
    let mut agent = agent();
    let task = result(agent.handle("message/send", &v03("a")))["id"].clone();
    let set = json!({ "taskId": task, "pushNotificationConfig": {
        "id": "p", "url": "https://x.example/", "token": "t",
        "authentication": { "schemes": ["Bearer"], "credentials": "c" },
    }});
    let shown = result(agent.handle("tasks/pushNotificationConfig/set", &set));
    assert_eq!(shown, set);
    let get = json!({ "id": task, "pushNotificationConfigId": "p" });
    assert_eq!(
        result(agent.handle("tasks/pushNotificationConfig/get", &get)),
        set
    );
    let flat = result(agent.handle(
        "GetTaskPushNotificationConfig",
        &json!({ "taskId": task, "id": "p" }),
    ));
    assert_eq!(flat["taskId"], task);
    assert_eq!(
        flat["authentication"],
        json!({ "scheme": "Bearer", "credentials": "c" })
    );
    let created = result(agent.handle(
        "CreateTaskPushNotificationConfig",
        &json!({ "taskId": task, "url": "https://y.example/" }),
    ));
    assert!(created["id"].is_string());
    let list = result(agent.handle(
        "ListTaskPushNotificationConfigs",
        &json!({ "taskId": task }),
    ));
    assert_eq!(list["configs"].as_array().unwrap().len(), 2);
    let list = result(agent.handle("tasks/pushNotificationConfig/list", &json!({ "id": task })));
    assert_eq!(list.as_array().unwrap().len(), 2);
    assert_eq!(
        result(agent.handle("tasks/pushNotificationConfig/delete", &get)),
        Value::Null
    );
    assert_eq!(
        code(agent.handle("tasks/pushNotificationConfig/get", &get)),
        -32602
    );
    let gone = json!({ "taskId": "nope", "id": "p" });
    assert_eq!(
        code(agent.handle("DeleteTaskPushNotificationConfig", &gone)),
        -32001
    );
    for n in 0..=limits::DEMO_PUSH_CONFIGS_MAX {
        let config = json!({ "taskId": task, "id": n.to_string(), "url": "https://y.example/" });
        let answer = agent.handle("CreateTaskPushNotificationConfig", &config);
        if n + 1 >= limits::DEMO_PUSH_CONFIGS_MAX {
            assert_eq!(code(answer), -32602, "{n}");
        } else {
            result(answer);
        }
    }
}

#[test]
fn errors() {
    let mut agent = agent();
    assert_eq!(code(agent.handle("tasks/frobnicate", &json!({}))), -32601);
    assert_eq!(
        code(agent.handle("tasks/get", &json!({ "id": "nope" }))),
        -32001
    );
    assert_eq!(code(agent.handle("GetTask", &json!({}))), -32602);
    assert_eq!(code(agent.handle("GetTask", &Value::Null)), -32602);
    assert_eq!(code(agent.handle("message/send", &json!([]))), -32602);
    assert_eq!(
        code(agent.handle("message/send", &json!({ "message": { "messageId": "m" } }))),
        -32602
    );
    let file = json!({ "message": { "messageId": "m", "parts": [{ "url": "https://x/" }] } });
    assert_eq!(code(agent.handle("SendMessage", &file)), -32005);
    for right in ["", "0.3", "0.3.0", "1.0"] {
        assert!(Agent::check_version(right).is_ok());
    }
    for wrong in ["99.0", "0.30", "1", "x"] {
        assert_eq!(Agent::check_version(wrong).unwrap_err().code, -32009);
    }
}

#[test]
fn cards_are_readable_by_both_versions() {
    let mut agent = agent();
    let card = agent.card();
    assert_eq!(card["url"], "http://127.0.0.1:1/");
    assert_eq!(card["supportedInterfaces"][0]["protocolVersion"], "1.0");
    assert_eq!(card["skills"].as_array().unwrap().len(), 1);
    for method in ["agent/getAuthenticatedExtendedCard", "GetExtendedAgentCard"] {
        let extended = result(agent.handle(method, &Value::Null));
        assert_eq!(extended["skills"].as_array().unwrap().len(), 2);
    }
}

#[test]
fn memory_is_bounded() {
    let mut agent = agent();
    for _ in 0..limits::DEMO_TASKS_MAX + 10 {
        agent.handle("SendMessage", &v10("a"));
    }
    assert_eq!(agent.tasks.len(), limits::DEMO_TASKS_MAX);
    assert_eq!(agent.order.len(), limits::DEMO_TASKS_MAX);
    let mut long = v10("a");
    long["message"]["messageId"] = json!("x".repeat(7 * 1024 * 1024));
    for _ in 0..12 {
        agent.handle("SendMessage", &long);
    }
    assert!(agent.octets <= limits::DEMO_OCTETS_MAX);
    let kept: usize = agent.tasks.values().map(Task::octets).sum();
    assert_eq!(kept, agent.octets);
    let many = "w ".repeat(10_000);
    let task = result(agent.handle("message/send", &v03(&many)));
    let pieces = task["artifacts"][0]["parts"].as_array().unwrap().len();
    assert!(pieces <= limits::DEMO_EVENTS_MAX, "{pieces}");
    assert_eq!(
        words(&task["artifacts"][0]["parts"]),
        format!("You said: {many}")
    );
}
