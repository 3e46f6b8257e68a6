use zookeeper_recipes::zookeeper_client::{Acls, SaslOptions};
use zookeeper_recipes::{Error, Options, Servers, Session};

/// Connects as the user `billing`. Only this user can use the locks of the session.
pub async fn connect(hosts: &str, password: String) -> Result<Session, Error> {
    let servers = Servers::new(hosts).with_sasl(SaslOptions::digest_md5("billing", password));
    let session = Session::connect(servers).await?;
    Ok(session.with_lock_options(Options::new().with_acls(Acls::creator_all())))
}
