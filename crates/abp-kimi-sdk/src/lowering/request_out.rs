//! Making a conversation fit what Kimi insists on.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use abp_core::ir::{
    IrBlock, IrContentBlock, IrConversation, IrMediaData, IrMessage, IrReasoning, IrReasoningMode,
    IrRole, IrThinkingKind, IrToolChoice, IrToolChoiceMode, IrVendorField, Leaf, Origin, RawJson,
};
use abp_dialect::{Dialect, How, Lowering};

use super::pictures;
use crate::wire::{self, Model};

/// Makes a conversation fit; one that fits is not copied.
pub(crate) fn fit<'c>(
    conversation: &'c IrConversation,
    out: &mut Lowering<'_>,
) -> Cow<'c, IrConversation> {
    let mut fitted = Cow::Borrowed(conversation);
    reopen_files(&mut fitted);
    if out.native() {
        return fitted;
    }
    let model = model(conversation, out);
    place_media(&mut fitted, out);
    name_calls(&mut fitted, out);
    mark_prefill(&mut fitted, out);
    let thinks = thinks(conversation.settings.reasoning.as_ref(), model);
    if thinks {
        add_reasoning(&mut fitted);
    }
    free_choice(&mut fitted, model, thinks, out);
    fitted
}

fn model(conversation: &IrConversation, out: &Lowering<'_>) -> Model {
    let asked = conversation.settings.model.as_ref();
    let name = out.profile().model.as_deref();
    let name = name.or(asked.map(|model| model.as_str()));
    name.map_or(Model::Other, Model::of)
}

/// Whether the model will think about this request.
fn thinks(reasoning: Option<&IrReasoning>, model: Model) -> bool {
    match model {
        Model::Classic => false,
        Model::Thinking => true,
        Model::Switchable | Model::Third => asked_to_think(reasoning).unwrap_or(true),
        Model::Other => asked_to_think(reasoning).unwrap_or(false),
    }
}

fn asked_to_think(reasoning: Option<&IrReasoning>) -> Option<bool> {
    let reasoning = reasoning?;
    let mode = reasoning
        .mode
        .as_ref()
        .map(|mode| mode.value != IrReasoningMode::Disabled);
    let effort = reasoning
        .effort
        .as_ref()
        .map(|effort| effort.value != "none");
    let budget = reasoning
        .budget_tokens
        .as_ref()
        .map(|budget| budget.as_u64() != Some(0));
    mode.or(effort).or(budget)
}

/// Gives files that Kimi keeps their address back.
fn reopen_files(fitted: &mut Cow<'_, IrConversation>) {
    let kept =
        |data: &IrMediaData| matches!(data, IrMediaData::FileId(id) if wire::is_kept_file(id));
    if !any_block(fitted, &|body| media_data(body).is_some_and(kept)) {
        return;
    }
    for message in &mut fitted.to_mut().messages {
        for media in pictures(&mut message.content) {
            if let IrMediaData::FileId(id) = &media.data
                && wire::is_kept_file(id)
            {
                media.data = IrMediaData::Url(id.clone());
            }
        }
    }
}

/// Whether any block, those in answers of tools included, is like this.
fn any_block(conversation: &IrConversation, like: &dyn Fn(&IrContentBlock) -> bool) -> bool {
    fn among(blocks: &[IrBlock], like: &dyn Fn(&IrContentBlock) -> bool) -> bool {
        blocks.iter().any(|block| match &block.body {
            IrContentBlock::ToolResult { content, .. } => among(content, like),
            body => like(body),
        })
    }
    let mut messages = conversation.messages.iter();
    messages.any(|message| among(&message.content, like))
}

fn media_data(body: &IrContentBlock) -> Option<&IrMediaData> {
    match body {
        IrContentBlock::Image { media, .. } | IrContentBlock::Video { media } => Some(&media.data),
        _ => None,
    }
}

/// Takes out what Kimi cannot open.
fn place_media(fitted: &mut Cow<'_, IrConversation>, out: &mut Lowering<'_>) {
    if !any_block(fitted, &|body| foreign(body).is_some()) {
        return;
    }
    for message in &mut fitted.to_mut().messages {
        place_blocks(&mut message.content, out);
    }
}

/// Why Kimi cannot open some content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Foreign {
    /// It is somewhere on the net.
    Address,
    /// It is of a kind that no message holds.
    Kind,
}

fn foreign(body: &IrContentBlock) -> Option<Foreign> {
    match body {
        IrContentBlock::Image { media, .. } | IrContentBlock::Video { media } => {
            matches!(&media.data, IrMediaData::Url(url) if !wire::is_kept_file(url))
                .then_some(Foreign::Address)
        }
        IrContentBlock::Audio { .. } => Some(Foreign::Kind),
        IrContentBlock::Document { media, .. } => match media.data {
            IrMediaData::Text(_) | IrMediaData::Blocks(_) => None,
            _ => Some(Foreign::Kind),
        },
        _ => None,
    }
}

fn place_blocks(blocks: &mut Vec<IrBlock>, out: &mut Lowering<'_>) {
    blocks.retain_mut(|block| {
        match foreign(&block.body) {
            Some(Foreign::Address) => {
                say_address(block, out);
            }
            Some(Foreign::Kind) => {
                let (label, reason) = match block.body {
                    IrContentBlock::Audio { .. } => ("audio", "there is no place for sounds"),
                    _ => ("document", "files are uploaded first, and given as text"),
                };
                out.refuse(block.origin, label, reason);
                return false;
            }
            None => {}
        }
        if let IrContentBlock::ToolResult { content, .. } = &mut block.body {
            place_blocks(content, out);
        }
        true
    });
}

/// Tells the model where a picture is: it takes contents, and opens nothing itself.
fn say_address(block: &mut IrBlock, out: &mut Lowering<'_>) {
    let (media, kind, label) = match &block.body {
        IrContentBlock::Image { media, .. } => (media, "image", "image_url"),
        IrContentBlock::Video { media } => (media, "video", "video_url"),
        _ => return,
    };
    let IrMediaData::Url(url) = &media.data else {
        return;
    };
    let reason = "the vendor opens no addresses; the model is told the address";
    out.note(block.origin, How::degraded(label, reason));
    let text = url.with(format!("[{kind}: {}]", url.value));
    block.body = IrContentBlock::text(text);
}

/// Gives calls and their answers ids in the models' own form.
fn name_calls(fitted: &mut Cow<'_, IrConversation>, out: &mut Lowering<'_>) {
    let names = new_ids(fitted);
    if names.is_empty() {
        return;
    }
    for message in &mut fitted.to_mut().messages {
        for block in &mut message.content {
            let id = match &mut block.body {
                IrContentBlock::ToolUse { id, .. } => id,
                IrContentBlock::ToolResult { tool_use_id, .. } => tool_use_id,
                _ => continue,
            };
            if let Some(id) = id
                && let Some(new) = names.get(&id.value)
            {
                out.note(id.origin, How::Converted("tool_id_mapped"));
                id.value.clone_from(new);
                message.origin = Origin::Host;
            }
        }
    }
}

/// The new ids by the old ones. Calls are numbered through the whole conversation.
fn new_ids(conversation: &IrConversation) -> BTreeMap<String, String> {
    let blocks = || {
        let messages = conversation.messages.iter();
        messages.flat_map(|message| &message.content)
    };
    let calls: Vec<(&str, &str)> = blocks()
        .filter_map(|block| match &block.body {
            IrContentBlock::ToolUse {
                id: Some(id), name, ..
            } => Some((id.as_str(), name.as_str())),
            _ => None,
        })
        .collect();
    // An answer whose call is not in the conversation must not become the answer to another one.
    let answered = blocks().filter_map(|block| match &block.body {
        IrContentBlock::ToolResult { tool_use_id, .. } => {
            tool_use_id.as_ref().map(|id| id.as_str())
        }
        _ => None,
    });
    let taken: BTreeSet<&str> = calls.iter().map(|(id, _)| *id).chain(answered).collect();
    let mut next = 0;
    let mut names = BTreeMap::new();
    for (id, tool) in &calls {
        if wire::is_call_id(id) {
            next += 1;
            continue;
        }
        let mut new = wire::call_id(tool, next);
        while taken.contains(new.as_str()) {
            next += 1;
            new = wire::call_id(tool, next);
        }
        names.insert((*id).to_owned(), new);
        next += 1;
    }
    names
}

/// Marks the answer to go on with. Where Claude is asked, an assistant's message at the end is one.
fn mark_prefill(fitted: &mut Cow<'_, IrConversation>, out: &Lowering<'_>) {
    if out.source() != Some(Dialect::Claude) {
        return;
    }
    let begun = |message: &&IrMessage| message.role == IrRole::Assistant && !calls(message);
    if fitted.messages.last().filter(begun).is_none() {
        return;
    }
    if let Some(last) = fitted.to_mut().messages.last_mut() {
        last.vendor.push(IrVendorField {
            name: wire::PARTIAL.to_owned(),
            value: Leaf::new(RawJson::trusted("true"), Origin::Made("prefill")),
        });
    }
}

fn calls(message: &IrMessage) -> bool {
    let is_call = |block: &IrBlock| matches!(block.body, IrContentBlock::ToolUse { .. });
    message.content.iter().any(is_call)
}

/// Adds reasoning to calls that have none: a model that thinks refuses them otherwise.
fn add_reasoning(fitted: &mut Cow<'_, IrConversation>) {
    let thinking = |block: &IrBlock| matches!(block.body, IrContentBlock::Thinking { .. });
    let lacks = |message: &IrMessage| calls(message) && !message.content.iter().any(thinking);
    if !fitted.messages.iter().any(lacks) {
        return;
    }
    for message in fitted
        .to_mut()
        .messages
        .iter_mut()
        .filter(|message| lacks(message))
    {
        let nothing = IrContentBlock::Thinking {
            text: Leaf::new(String::new(), Origin::Made("reasoning_content_missing")),
            kind: IrThinkingKind::Raw,
            signature: None,
            encrypted: None,
            item_id: None,
        };
        message.content.insert(0, nothing.into());
        message.origin = Origin::Host;
    }
}

/// Leaves the choice of a tool to the model where it cannot be told: it knows no list of tools to
/// choose from, and one that thinks takes no orders.
fn free_choice(
    fitted: &mut Cow<'_, IrConversation>,
    model: Model,
    thinks: bool,
    out: &mut Lowering<'_>,
) {
    let Some(IrToolChoice { mode, origin }) = &fitted.settings.tool_choice else {
        return;
    };
    let (asked, unlisted) = match mode {
        IrToolChoiceMode::Allowed { required: true, .. } => (IrToolChoiceMode::Required, true),
        IrToolChoiceMode::Allowed { .. } => (IrToolChoiceMode::Auto, true),
        other => (other.clone(), false),
    };
    let (free, forced) = match (asked, thinks, model) {
        (IrToolChoiceMode::Named { .. }, true, Model::Third) => (IrToolChoiceMode::Required, true),
        (IrToolChoiceMode::Required, true, Model::Third) => (IrToolChoiceMode::Required, false),
        (IrToolChoiceMode::Named { .. } | IrToolChoiceMode::Required, true, _) => {
            (IrToolChoiceMode::Auto, true)
        }
        (asked, _, _) => (asked, false),
    };
    let how = match (unlisted, forced) {
        (false, false) => return,
        (true, _) => How::degraded("allowed_tools", "the model may call any tool"),
        (false, true) => {
            let reason = "a model that thinks cannot be made to call this tool";
            How::degraded("tool_choice", reason)
        }
    };
    let origin = *origin;
    out.note(origin, how);
    fitted.to_mut().settings.tool_choice = Some(IrToolChoice { mode: free, origin });
}
