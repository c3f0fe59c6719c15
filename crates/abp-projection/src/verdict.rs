//! The choice in words: why a candidate was chosen, or why it was not.

use crate::matrix::Evaluated;

/// One of the candidates, which are sorted by preference.
pub(crate) struct Standing<'e> {
    pub(crate) evaluated: &'e [Evaluated],
    pub(crate) rank: usize,
}

impl Standing<'_> {
    /// The sentence about it.
    pub(crate) fn verdict(&self) -> String {
        let (Some(this), Some(best)) = (self.evaluated.get(self.rank), self.evaluated.first())
        else {
            return String::new();
        };
        if !this.is_eligible {
            return format!(
                "not chosen because it cannot do everything that is required: {}",
                this.refusals.join("; ")
            );
        }
        if self.rank == 0 {
            return format!("chosen because {}", self.praise(this));
        }
        format!("not chosen because {}", inferiority(this, best))
    }

    /// What speaks for the chosen one.
    fn praise(&self, this: &Evaluated) -> String {
        let total = this.score.total;
        let able = "it can do everything that is required";
        let mut others = self.evaluated.iter().skip(1).filter(|e| e.is_eligible);
        let rival = others.find(|e| e.is_demonstration == this.is_demonstration);
        let only_demonstrates = if this.is_demonstration {
            "; it only demonstrates the way of an order, and no real backend can do this one"
        } else {
            ""
        };
        let standing = match rival {
            _ if self.evaluated.len() == 1 => "no other backend was considered".to_owned(),
            None if this.is_demonstration => "no other backend can".to_owned(),
            None => "no other real backend can".to_owned(),
            Some(rival) if rival.score.total < total => {
                format!("its score of {total:.3} is the highest")
            }
            Some(rival) if this.is_same_dialect && !rival.is_same_dialect => format!(
                "it shares the highest score ({total:.3}) with {} and speaks the vendor's own dialect",
                rival.backend
            ),
            Some(rival) => format!(
                "it shares the highest score ({total:.3}) with {} and comes first by name",
                rival.backend
            ),
        };
        format!("{able}, and {standing}{only_demonstrates}")
    }
}

/// Why an eligible candidate comes after the chosen one.
fn inferiority(this: &Evaluated, best: &Evaluated) -> String {
    let (total, chosen) = (this.score.total, &best.backend);
    if this.is_demonstration && !best.is_demonstration {
        return format!(
            "it only demonstrates the way of an order, and {chosen}, a real backend, can do this one"
        );
    }
    if total < best.score.total {
        return format!(
            "its score of {total:.3} is below the {:.3} of {chosen}",
            best.score.total
        );
    }
    if best.is_same_dialect && !this.is_same_dialect {
        return format!(
            "it has the same score as {chosen}, which speaks the dialect of the request"
        );
    }
    format!("it has the same score as {chosen}, which comes first by name")
}
