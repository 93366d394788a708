//! What the store answers when another node asks.

use crate::catalog_answer::CatalogAnswer;
use crate::services::number;
use crate::store::Store;
use crate::{compaction_query, coordination, hot_key_search};
use bytes::Bytes;
use serde::Serialize;
use tessera_types::{NodeId, TableId};

impl Store {
    /// Does what another node of the cluster asks of a service of the store, or of a face. The answer is empty if there is no such
    /// service here.
    pub async fn answer(&self, from: NodeId, service: u8, request: Bytes) -> Bytes {
        match service {
            number::CATALOG => json(&self.answer_catalog_change(from, &request).await),
            number::CLEAR => match self.answer_clear(&request).await {
                Ok(()) => Bytes::from_static(b"ok"),
                Err(error) => Bytes::from(error),
            },
            number::COMPACTION => json(&compaction_query::answer(self, &request)),
            number::FOLLOWS => Bytes::from_static(self.answer_whether_it_follows(&request).await),
            number::CATALOG_INDEX => self.answer_catalog_index(),
            number::HOT_KEYS => json(&hot_key_search::answer(self, &request).await),
            number::TRANSACTION => coordination::carry_out(self, request).await.encode(),
            number::INSTANT => coordination::answer_instant(self.coordination(), request).await.encode(),
            face => match self.services().ask(face, request) {
                Some(outcomes) => outcomes.await.encode(),
                None => Bytes::new(),
            },
        }
    }

    async fn answer_catalog_change(&self, from: NodeId, request: &[u8]) -> CatalogAnswer {
        let answer: CatalogAnswer = match serde_json::from_slice(request) {
            Ok(command) => self.change_catalog_here(command).await.into(),
            Err(error) => CatalogAnswer::Failed(error.to_string()),
        };
        let reads_index = self.transport().version_with(from).is_some_and(|version| version >= 7);
        match answer {
            CatalogAnswer::Changed(changed) if reads_index => {
                CatalogAnswer::ChangedAt(changed, self.view().progress().index())
            }
            answer => answer,
        }
    }

    async fn answer_clear(&self, request: &[u8]) -> Result<(), String> {
        let (table, partitions): (TableId, Vec<u32>) =
            serde_json::from_slice(request).map_err(|error| error.to_string())?;
        let table = self.table(table).ok_or("the table is not known here")?;
        for partition in partitions.into_iter().filter(|partition| *partition < table.schema.partitions) {
            self.clear(&table, partition..partition + 1).await.map_err(|error| error.to_string())?;
        }
        Ok(())
    }
}

fn json(answer: &impl Serialize) -> Bytes {
    serde_json::to_vec(answer).expect("answers have a JSON form").into()
}
