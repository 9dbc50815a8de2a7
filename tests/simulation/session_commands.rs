//! Commands that need the connection or the whole server: the login, scripts, channels, and what
//! the server says of itself.

use super::book::Naming;
use super::commands::Answer;
use super::resp::{Reply, Version, Word, number};
use super::server::{Mode, Role, Server, Session};

fn is(word: &[u8], option: &str) -> bool {
    word.eq_ignore_ascii_case(option.as_bytes())
}

fn text(word: &[u8]) -> String {
    String::from_utf8_lossy(word).into_owned()
}

pub fn ping(server: &mut Server, session: &mut Session, words: &[Word]) -> Answer {
    server.data.book.was_asked_by_resp2 |= session.version == Version::Two;
    Ok(words.first().map_or_else(|| Reply::Status("PONG".into()), Reply::text))
}

// The login.

pub fn hello(server: &mut Server, session: &mut Session, words: &[Word]) -> Answer {
    let mut version = session.version;
    let mut rest = words.iter();
    if let Some(wanted) = rest.next() {
        version = match number(wanted) {
            Some(2) => Version::Two,
            Some(3) => Version::Three,
            Some(_) => return Err("NOPROTO unsupported protocol version".into()),
            None => {
                let error = "ERR Protocol version is not an integer or out of range";
                return Err(error.into());
            }
        };
    }
    while let Some(option) = rest.next() {
        if is(option, "AUTH") && rest.len() >= 2 {
            let login: Vec<_> = rest.by_ref().take(2).cloned().collect();
            auth(server, session, &login)?;
        } else if is(option, "SETNAME") && rest.len() >= 1 {
            rest.next();
        } else {
            let option = text(option);
            return Err(Reply::Error(format!("ERR Syntax error in HELLO option '{option}'")));
        }
    }
    if !session.is_logged_in {
        let error = "NOAUTH HELLO must be called with the client already authenticated, otherwise \
                     the HELLO <proto> AUTH <user> <pass> option can be used to authenticate the \
                     client and select the RESP protocol version at the same time";
        return Err(error.into());
    }
    session.version = version;
    let mode = match &server.mode {
        Mode::Standalone => "standalone",
        Mode::Cluster(_) => "cluster",
        Mode::Sentinel(_) => "sentinel",
    };
    // A sentinel has no role.
    let role = match (&server.mode, &server.role) {
        (Mode::Sentinel(_), _) => None,
        (_, Role::Primary) => Some(("role", Reply::text("master"))),
        (_, Role::Replica { .. }) => Some(("role", Reply::text("replica"))),
    };
    let begin = vec![
        ("server", Reply::text("redis")),
        ("version", Reply::text("7.0.15")),
        ("proto", Reply::Integer(if version == Version::Three { 3 } else { 2 })),
        ("id", Reply::Integer(session.id as i64)),
        ("mode", Reply::text(mode)),
    ];
    let end = [("modules", Reply::List(Vec::new()))];
    Ok(Reply::Map(begin.into_iter().chain(role).chain(end).collect()))
}

pub fn auth(server: &mut Server, session: &mut Session, words: &[Word]) -> Answer {
    let (user, password) = match words {
        [password] => (b"default".as_slice(), password),
        [user, password] => (user.as_slice(), password),
        _ => return Err("ERR syntax error".into()),
    };
    match &server.password {
        None if words.len() == 1 => {
            let error = "ERR AUTH <password> called without any password configured for the \
                         default user. Are you sure your configuration is correct?";
            Err(error.into())
        }
        Some(expected) if user == b"default" && expected.as_bytes() != password => {
            Err("WRONGPASS invalid username-password pair or user is disabled.".into())
        }
        _ if user != b"default" => {
            Err("WRONGPASS invalid username-password pair or user is disabled.".into())
        }
        _ => {
            session.is_logged_in = true;
            Ok(Reply::ok())
        }
    }
}

pub fn client(_: &mut Server, session: &mut Session, words: &[Word]) -> Answer {
    match () {
        () if is(&words[0], "SETINFO") || is(&words[0], "SETNAME") => Ok(Reply::ok()),
        () if is(&words[0], "ID") => Ok(Reply::Integer(session.id as i64)),
        () => Err(unknown_subcommand("CLIENT", &words[0])),
    }
}

pub fn select(server: &mut Server, _: &mut Session, words: &[Word]) -> Answer {
    match number(&words[0]) {
        Some(0) => Ok(Reply::ok()),
        Some(_) if matches!(server.mode, Mode::Cluster(_)) => {
            Err("ERR SELECT is not allowed in cluster mode".into())
        }
        // All that is simulated stands in the first database.
        Some(_) => Err("ERR DB index is out of range".into()),
        None => Err("ERR invalid DB index".into()),
    }
}

// Scripts.

pub fn script(server: &mut Server, _: &mut Session, words: &[Word]) -> Answer {
    if is(&words[0], "LOAD") && words.len() == 2 {
        return server.interpreter.load(&words[1]).map(Reply::text);
    }
    if is(&words[0], "FLUSH") {
        server.interpreter.flush();
        return Ok(Reply::ok());
    }
    if is(&words[0], "EXISTS") && words.len() > 1 {
        let is_known = |digest: &Word| server.interpreter.script(&text(digest)).is_some();
        let known = words[1..].iter().map(|digest| Reply::Integer(is_known(digest).into()));
        return Ok(Reply::List(known.collect()));
    }
    Err(unknown_subcommand("SCRIPT", &words[0]))
}

pub fn eval(server: &mut Server, session: &mut Session, words: &[Word]) -> Answer {
    let (keys, arguments) = keys_and_arguments(&words[1..])?;
    let digest = server.interpreter.load(&words[0])?;
    Ok(server.run_script(session, &digest, keys, arguments))
}

pub fn evalsha(server: &mut Server, session: &mut Session, words: &[Word]) -> Answer {
    let (keys, arguments) = keys_and_arguments(&words[1..])?;
    let digest = text(&words[0]).to_ascii_lowercase();
    if server.interpreter.script(&digest).is_none() {
        return Err("NOSCRIPT No matching script. Please use EVAL.".into());
    }
    Ok(server.run_script(session, &digest, keys, arguments))
}

fn keys_and_arguments(words: &[Word]) -> Result<(&[Word], &[Word]), Reply> {
    let count = number(&words[0]).ok_or("ERR value is not an integer or out of range")?;
    let count = usize::try_from(count).map_err(|_| "ERR Number of keys can't be negative")?;
    let split = words[1..].split_at_checked(count);
    Ok(split.ok_or("ERR Number of keys can't be greater than number of args")?)
}

// Channels.

pub fn subscribe(_: &mut Server, session: &mut Session, words: &[Word]) -> Answer {
    // Each channel has a reply of its own, of which the last one is the command's.
    let mut last = None;
    for channel in words {
        session.channels.insert(channel.clone());
        let count = Reply::count(session.channels.len());
        let told = vec![Reply::text("subscribe"), Reply::text(channel), count];
        if let Some(before) = last.replace(Reply::Push(told)) {
            before.write(session.version, &mut session.output);
        }
    }
    Ok(last.expect("a channel"))
}

pub fn publish(server: &mut Server, session: &mut Session, words: &[Word]) -> Answer {
    let mut count = server.publish(&text(&words[0]), &text(&words[1]));
    if session.channels.contains(&words[0]) {
        let parts = [b"message".as_slice(), &words[0], &words[1]].map(Reply::text);
        Reply::Push(parts.to_vec()).write(session.version, &mut session.output);
        count += 1;
    }
    Ok(Reply::count(count))
}

// What the server says of itself.

pub fn info(server: &mut Server, _: &mut Session, _: &[Word]) -> Answer {
    let role = match &server.role {
        Role::Primary => "role:master\r\n".to_owned(),
        Role::Replica { of: (host, port) } => {
            format!("role:slave\r\nmaster_host:{host}\r\nmaster_port:{port}\r\n")
        }
    };
    let is_loading = u8::from(server.is_loading);
    Ok(Reply::text(format!(
        "# Server\r\nredis_version:7.0.15\r\n# Persistence\r\nloading:{is_loading}\r\n\
         # Replication\r\n{role}"
    )))
}

pub fn role(server: &mut Server, _: &mut Session, _: &[Word]) -> Answer {
    Ok(Reply::List(match &server.role {
        Role::Primary => {
            vec![Reply::text("master"), Reply::Integer(0), Reply::List(Vec::new())]
        }
        Role::Replica { of: (host, port) } => vec![
            Reply::text("slave"),
            Reply::text(host),
            Reply::Integer((*port).into()),
            Reply::text("connected"),
            Reply::Integer(0),
        ],
    }))
}

pub fn sentinel(server: &mut Server, _: &mut Session, words: &[Word]) -> Answer {
    let Mode::Sentinel(services) = &server.mode else {
        return Err("ERR unknown command 'SENTINEL', with args beginning with: ".into());
    };
    let service = words.get(1).and_then(|name| services.get(&text(name)));
    if is(&words[0], "GET-MASTER-ADDR-BY-NAME") {
        return Ok(service.map_or(Reply::NilList, |service| {
            let (host, port) = &service.primary;
            Reply::List(vec![Reply::text(host), Reply::text(port.to_string())])
        }));
    }
    let service = service.ok_or("ERR No such master with that name")?;
    if is(&words[0], "MASTER") {
        let (host, port) = &service.primary;
        return Ok(Reply::Map(vec![
            ("name", Reply::text(&words[1])),
            ("ip", Reply::text(host)),
            ("port", Reply::text(port.to_string())),
            ("flags", Reply::text("master")),
            ("config-epoch", Reply::text(service.epoch.to_string())),
        ]));
    }
    if is(&words[0], "SENTINELS") {
        return Ok(Reply::List(Vec::new()));
    }
    Err(unknown_subcommand("SENTINEL", &words[0]))
}

// Clusters.

pub fn cluster(server: &mut Server, session: &mut Session, words: &[Word]) -> Answer {
    let Mode::Cluster(slots) = &server.mode else {
        return Err("ERR This instance has cluster support disabled".into());
    };
    if !is(&words[0], "SLOTS") {
        return Err(unknown_subcommand("CLUSTER", &words[0]));
    }
    let (session, came_at, hosts) = (session.id, server.data.now, slots.masters());
    server.data.book.record_naming(Naming { session, came_at, is_map: true, hosts });
    Ok(slots.reply())
}

pub fn asking(server: &mut Server, session: &mut Session, _: &[Word]) -> Answer {
    only_in_cluster(server)?;
    session.is_asking = true;
    Ok(Reply::ok())
}

pub fn readonly(server: &mut Server, session: &mut Session, _: &[Word]) -> Answer {
    only_in_cluster(server)?;
    session.is_read_only = true;
    Ok(Reply::ok())
}

fn only_in_cluster(server: &Server) -> Result<(), Reply> {
    match server.mode {
        Mode::Cluster(_) => Ok(()),
        _ => Err("ERR This instance has cluster support disabled".into()),
    }
}

fn unknown_subcommand(command: &str, word: &[u8]) -> Reply {
    let word = text(word);
    Reply::Error(format!("ERR unknown subcommand '{word}'. Try {command} HELP."))
}
