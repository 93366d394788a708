//! TLS: what nodes show, and whom the CLI and the benchmark trust.

use crate::resp_client::Client;
use crate::server::{Node, free_port, self_signed, tessera, wait_for};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

/// How long a node may take to start.
const LIMIT: Duration = Duration::from_secs(30);

/// The CLI once trusted well-known authorities only, so a node with a certificate of a private one could not be reached.
#[test]
fn the_cli_reaches_a_node_whose_certificate_a_private_authority_has_signed() {
    let data = TempDir::new().unwrap();
    let path = |name: &str| data.path().join(name).display().to_string();
    let openssl = |arguments: &str| {
        let made = Command::new("openssl").args(arguments.split(' ')).output().unwrap();
        assert!(made.status.success(), "{arguments}: {}", String::from_utf8_lossy(&made.stderr));
    };
    let (authority, signer, certificate, key) = (path("ca.pem"), path("ca.key"), path("cert.pem"), path("key.pem"));
    let new = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";
    openssl(&format!("req -x509 {new} -days 2 -subj /CN=authority -keyout {signer} -out {authority}"));
    openssl(&format!(
        "req -x509 {new} -days 2 -subj /CN=node -addext subjectAltName=IP:127.0.0.1 -addext basicConstraints=CA:FALSE -CA \
         {authority} -CAkey {signer} -keyout {key} -out {certificate}"
    ));
    let (redis_port, admin_port) = (free_port(), free_port());
    let settings = [format!("tls.certificate={certificate}"), format!("tls.key={key}")];
    let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
    let _node = Node::spawn(&data.path().join("data"), redis_port, admin_port, &settings);
    let run = |command: &mut Command| {
        let output = command.output().unwrap();
        output.status.success().then_some(()).ok_or_else(|| String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let status_of_system = |file: Option<&str>, arguments: &[&str]| {
        let mut command = tessera();
        command.env_remove("SSL_CERT_FILE").envs(file.map(|file| ("SSL_CERT_FILE", file)));
        run(command.args(["status", "--admin", &format!("https://127.0.0.1:{admin_port}")]).args(arguments))
    };
    let status = |arguments: &[&str]| status_of_system(None, arguments);
    wait_for("the node is reached", LIMIT, || status(&["--cacert", &authority]).ok());
    let error = status(&[]).unwrap_err();
    assert!(error.contains("is not trusted") && error.contains("--cacert"), "nobody knows this authority: {error}");
    let error = status(&["--cacert", &key]).unwrap_err();
    assert!(error.contains("there is no certificate in the file"), "{error}");
    // The authorities that the machine trusts were not looked at once. Some of them may be of no use, and who names a file trusts no others.
    assert_eq!(status_of_system(Some(&authority), &[]), Ok(()));
    let bundle = path("bundle.pem");
    let odd = "-----BEGIN CERTIFICATE-----\nb2Rk\n-----END CERTIFICATE-----\n";
    std::fs::write(&bundle, odd.to_string() + &std::fs::read_to_string(&authority).unwrap()).unwrap();
    assert_eq!(status_of_system(Some(&bundle), &[]), Ok(()));
    assert!(
        status_of_system(Some(&authority), &["--cacert", &bundle]).is_err(),
        "one of those that were named is none"
    );
    let error = status_of_system(Some("/nowhere"), &[]).unwrap_err();
    assert!(error.contains("SSL_CERT_FILE=/nowhere: No such file"), "{error}");
    assert!(status_of_system(Some("/nowhere"), &["--cacert", &authority]).is_ok());
}

/// Its own certificate is enough, also if it is that of an authority, as most that somebody has signed for himself are. Its name
/// counts as ever, and so does every byte.
#[test]
fn the_cli_takes_a_nodes_own_certificate() {
    let data = TempDir::new().unwrap();
    let path = |name: &str| data.path().join(name).display().to_string();
    let make = |name: &str, subject: &str, more: &[&str]| {
        let made = Command::new("openssl")
            .args([
                "req",
                "-x509",
                "-newkey",
                "ec",
                "-pkeyopt",
                "ec_paramgen_curve:P-256",
                "-nodes",
                "-subj",
                "/CN=node",
            ])
            .args(["-addext", &format!("subjectAltName={subject}"), "-keyout", &path(&format!("{name}.key"))])
            .args(["-out", &path(&format!("{name}.pem"))])
            .args(more)
            .output()
            .unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    };
    let serve = |name: &str| {
        let (redis_port, admin_port) = (free_port(), free_port());
        let settings = [("certificate", "pem"), ("key", "key")];
        let settings = settings.map(|(setting, ending)| format!("tls.{setting}={}", path(&format!("{name}.{ending}"))));
        let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
        let node = Node::spawn(&data.path().join(format!("data-{name}")), redis_port, admin_port, &settings);
        (node, admin_port)
    };
    let status = |admin_port: u16, certificate: &str| {
        let admin = format!("https://127.0.0.1:{admin_port}");
        let certificate = path(&format!("{certificate}.pem"));
        let output = tessera().args(["status", "--admin", &admin, "--cacert", &certificate]).output().unwrap();
        output.status.success().then_some(()).ok_or_else(|| String::from_utf8_lossy(&output.stderr).into_owned())
    };
    for (name, more) in
        [("own", &["-days", "2"][..]), ("leaf", &["-days", "2", "-addext", "basicConstraints=CA:FALSE"])]
    {
        make(name, "IP:127.0.0.1", more);
        let (_node, admin_port) = serve(name);
        wait_for("the node is reached", LIMIT, || status(admin_port, name).ok());
        if name == "own" {
            make("other", "IP:127.0.0.1", &["-days", "2"]);
            assert!(status(admin_port, "other").is_err(), "it is another one of the same name");
        }
    }
    make("misnamed", "DNS:elsewhere.example", &["-days", "2"]);
    let (_node, admin_port) = serve("misnamed");
    let refused = || status(admin_port, "misnamed").err().filter(|error| !error.contains("refused"));
    let error = wait_for("the node answers", LIMIT, refused);
    assert!(error.contains("not valid for name"), "{error}");
    let output = tessera().args(["status", "--admin", &format!("http://127.0.0.1:{admin_port}")]).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains(&format!("say --admin https://127.0.0.1:{admin_port}")), "{error}");
}

/// The clients' errors once did not tell, and the node said nothing.
#[test]
fn a_certificate_that_has_ended_or_soon_will_is_told_of() {
    let data = TempDir::new().unwrap();
    let serve = |name: &str, (certificate, key): &(PathBuf, PathBuf)| {
        let settings = [format!("tls.certificate={}", certificate.display()), format!("tls.key={}", key.display())];
        let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
        let log = data.path().join(format!("{name}.log"));
        let mut command = tessera();
        command.arg("start").stderr(File::create(&log).unwrap());
        let node = Node::spawn_with(command, &data.path().join(name), free_port(), free_port(), &settings);
        (node, log)
    };
    let status = |admin_port: u16, certificate: &Path| {
        let mut command = tessera();
        command.args(["status", "--admin", &format!("https://127.0.0.1:{admin_port}"), "--cacert"]).arg(certificate);
        let output = command.output().unwrap();
        let [out, error] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
        if output.status.success() { Ok(out) } else { Err(error) }
    };
    let said = |log: &Path, words: &str| std::fs::read_to_string(log).unwrap().contains(words);

    let ended = ended_certificate(data.path());
    let (node, log) = serve("ended", &ended);
    let refused = || status(node.admin_port, &ended.0).err().filter(|error| !error.contains("refused"));
    let error = wait_for("the node answers", LIMIT, refused);
    let date = "expired on Sat, 01 Feb 2020 00:00:00 GMT";
    assert!(error.contains(date), "{error}");
    assert!(said(&log, date));

    let brief = self_signed(data.path(), "brief");
    let (node, log) = serve("brief", &brief);
    let status = wait_for("the node is reached", LIMIT, || status(node.admin_port, &brief.0).ok());
    assert!(status.contains("door        the certificate for TLS ends on "), "{status}");
    assert!(said(&log, "the certificate for TLS ends on "));
}

/// A certificate for 127.0.0.1 that was valid in January 2020, with its key.
fn ended_certificate(directory: &Path) -> (PathBuf, PathBuf) {
    let [certificate, key, request, rules] =
        ["ended.pem", "ended.key", "ended.csr", "ended.cnf"].map(|name| directory.join(name));
    let text = "[ca]\ndefault_ca=all\n[all]\ndatabase=index.txt\nnew_certs_dir=.\nrand_serial=yes\ndefault_md=sha256\npolicy=any\n\
                [any]\ncommonName=supplied\n[names]\nsubjectAltName=IP:127.0.0.1\n";
    std::fs::write(&rules, text).unwrap();
    std::fs::write(directory.join("index.txt"), "").unwrap();
    let openssl = |arguments: &str, files: &[(&str, &Path)]| {
        let mut command = Command::new("openssl");
        command.current_dir(directory).args(arguments.split(' '));
        files.iter().for_each(|(option, file)| _ = command.arg(option).arg(file));
        let made = command.output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    };
    openssl(
        "req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=ended -batch",
        &[("-keyout", &key), ("-out", &request)],
    );
    openssl(
        "ca -batch -selfsign -notext -startdate 20200101000000Z -enddate 20200201000000Z -extensions names",
        &[("-config", &rules), ("-keyfile", &key), ("-in", &request), ("-out", &certificate)],
    );
    (certificate, key)
}

#[test]
fn every_listener_speaks_tls_when_told_to() {
    let data = TempDir::new().unwrap();
    let (certificate, key) = self_signed(data.path(), "localhost");
    let (redis_port, admin_port) = (free_port(), free_port());
    let settings = [format!("tls.certificate={}", certificate.display()), format!("tls.key={}", key.display())];
    let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
    let _node = Node::spawn(&data.path().join("data"), redis_port, admin_port, &settings);
    let redis_cli = |arguments: &[&str]| {
        let mut command = Command::new("redis-cli");
        command.args(["-p", &redis_port.to_string(), "--tls", "--cacert"]).arg(&certificate).args(arguments);
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    };
    wait_for("TLS is spoken", LIMIT, || (redis_cli(&["SET", "k", "secret"]) == "OK\n").then_some(()));
    assert_eq!(redis_cli(&["GET", "k"]), "secret\n");
    let large = "x".repeat(200_000);
    assert_eq!(redis_cli(&["SET", "large", &large[..100_000]]), "OK\n");
    assert_eq!(redis_cli(&["GET", "large"]).len(), 100_001);
    // Once 64 silent clients kept others out of the admin port until their handshakes had taken ten seconds.
    let began = std::time::Instant::now();
    let silent = (0..100).map(|_| std::net::TcpStream::connect(("127.0.0.1", admin_port)).unwrap());
    let _silent: Vec<_> = silent.collect();
    let health = Command::new("openssl")
        .args(["s_client", "-connect", &format!("127.0.0.1:{admin_port}"), "-CAfile"])
        .arg(&certificate)
        .args(["-verify_return_error", "-brief"])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(health.status.success(), "{}", String::from_utf8_lossy(&health.stderr));
    assert!(began.elapsed() < Duration::from_secs(8), "silent clients keep nobody waiting");
    // Plain text is not answered.
    let mut plain = Client::connect(redis_port).unwrap();
    assert!(plain.call(&[b"PING".to_vec()]).is_err());
}

/// The benchmark once spoke plainly only.
#[test]
fn the_benchmark_speaks_tls_and_logs_in() {
    let data = TempDir::new().unwrap();
    let (certificate, key) = self_signed(data.path(), "localhost");
    let certificate = certificate.to_str().unwrap();
    let hash = crate::reql_users::hash_password("secret", &[]);
    let settings = [
        format!("tls.certificate={certificate}"),
        format!("tls.key={}", key.display()),
        format!("redis.users=[{{name=\"shop\", password_hash=\"{hash}\", access=[\"read\", \"write\"]}}]"),
    ];
    let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
    let port = free_port();
    let node = Node::spawn(&data.path().join("data"), port, free_port(), &settings);
    let bench = |arguments: &[&str]| {
        let mut command = tessera();
        command.env_remove("SSL_CERT_FILE").args(["bench", "run", "--quiet", "--host", "localhost", "--port"]);
        command.args([&port.to_string(), "--warm-up", "0", "--operations", "2000", "--records", "1000"]);
        let output = command.args(arguments).output().unwrap();
        let [out, errors] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
        if output.status.success() { Ok(out) } else { Err(errors) }
    };
    let with_tls = ["--tls", "--cacert", certificate];
    let with_user = [&with_tls[..], &["--user", "shop", "--password", "secret"]].concat();
    wait_for("the node serves", LIMIT, || bench(&[&with_user[..], &["--load"]].concat()).ok());
    // Values that are longer than a record of TLS, and more than one of them at a time.
    let large = ["--mix", "1:1", "--field-bytes", "100000", "--pipeline", "4", "--threads", "8"];
    let table = bench(&[&with_user[..], &large].concat()).unwrap();
    assert!(table.contains("| 100000 B | 1*8 | 4 |"), "{table}");
    // A client that knows clusters asks a node before it connects to all.
    let admin = format!("https://localhost:{}", node.admin_port);
    let create =
        ["table", "create", "slots", "--partitioner", "redis-slots", "--admin", &admin, "--cacert", certificate];
    assert!(tessera().args(create).output().unwrap().status.success());
    bench(&[&with_user[..], &["--protocol", "redis-cluster", "--table", "slots", "--load"]].concat()).unwrap();
    let error = bench(&with_tls).unwrap_err();
    assert!(error.contains("NOAUTH"), "{error}");
    let error = bench(&[&with_tls[..], &["--user", "shop", "--password", "wrong"]].concat()).unwrap_err();
    assert!(error.contains("the server refuses AUTH") && error.contains("WRONGPASS"), "{error}");
    let error = bench(&["--tls"]).unwrap_err();
    assert!(error.contains("invalid peer certificate"), "{error}");
    assert!(bench(&["--user", "shop", "--password", "secret"]).is_err(), "without TLS nothing is answered");
}
