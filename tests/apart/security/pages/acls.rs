use zookeeper_recipes::zookeeper_client::Acls;
use zookeeper_recipes::{Config, Error, Options, Session};

/// Only clients with the credentials of the configuration can use the locks of the session.
pub async fn connect(config: &Config) -> Result<Session, Error> {
    let session = Session::connect(config).await?;
    Ok(session.with_lock_options(Options::new().with_acls(Acls::creator_all())))
}
