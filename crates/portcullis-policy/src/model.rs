//! The questions put to Cedar: entities and requests that fit the schema.

use std::{
    collections::{HashMap, HashSet},
    sync::LazyLock,
};

use cedar_policy::{
    Context, Entities, Entity, EntityId, EntityTypeName, EntityUid, Request, RestrictedExpression, Schema,
};
use chrono::{DateTime, SecondsFormat};
use portcullis_types::{AgentId, Hash, ServerId, Source, Tier};

use crate::{CallQuestion, ElicitationQuestion, builtin};

/// Why a question could not be put. It denies; the sentence goes into the decision.
pub(crate) type Unfit = String;

/// The schema with its names resolved.
pub(crate) struct Model {
    schema: Schema,
    types: Types,
}

struct Types {
    action: EntityTypeName,
    agent: EntityTypeName,
    args: EntityTypeName,
    profile: EntityTypeName,
    server: EntityTypeName,
    tier: EntityTypeName,
    tool: EntityTypeName,
}

/// A question, whole but for the action: who, about what, in which world.
pub(crate) struct Question {
    pub(crate) principal: EntityUid,
    pub(crate) resource: EntityUid,
    pub(crate) entities: Entities,
    context: Vec<(String, RestrictedExpression)>,
    /// What must be among the entities: Cedar answers for a missing one as for one without attributes and tags.
    pub(crate) required: Vec<EntityUid>,
}

impl Model {
    /// The model of the embedded schema, which is read once.
    pub(crate) fn embedded() -> Result<&'static Self, Unfit> {
        static MODEL: LazyLock<Result<Model, Unfit>> = LazyLock::new(Model::new);
        MODEL.as_ref().map_err(Clone::clone)
    }

    fn new() -> Result<Self, Unfit> {
        let (schema, _) = Schema::from_cedarschema_str(builtin::SCHEMA).map_err(|error| error.to_string())?;
        let named = |name: &str| {
            format!("Mcp::{name}")
                .parse::<EntityTypeName>()
                .map_err(|error| error.to_string())
        };
        let types = Types {
            action: named("Action")?,
            agent: named("Agent")?,
            args: named("Args")?,
            profile: named("Profile")?,
            server: named("Server")?,
            tier: named("Tier")?,
            tool: named("Tool")?,
        };
        Ok(Self { schema, types })
    }

    pub(crate) fn schema(&self) -> &Schema {
        &self.schema
    }

    /// The question of a call. `tags` are the arguments, see [`crate::arguments::tags`].
    pub(crate) fn call(
        &self,
        question: &CallQuestion<'_>,
        tags: Vec<(String, String)>,
    ) -> Result<Question, Unfit> {
        let CallQuestion {
            agent,
            profile,
            tier,
            tool,
            arguments,
            now_ms,
        } = question;
        let (principal, mut entities) = self.agent(agent, profile);
        let (source, server) = (tool.capability.source(), tool.capability.server());
        let parent = self.server(source, server, &tool.transport, &mut entities)?;
        let resource = uid(&self.types.tool, &tool.capability.to_string());
        entities.push(fit(Entity::new(
            resource.clone(),
            tool_attrs(tool),
            HashSet::from([parent.clone()]),
        ))?);
        let args = uid(&self.types.args, "call");
        let tags = tags
            .into_iter()
            .map(|(path, text)| (path, RestrictedExpression::new_string(text)));
        entities.push(fit(Entity::new_with_tags(args.clone(), [], [], tags))?);
        let now = DateTime::from_timestamp_millis(*now_ms)
            .ok_or_else(|| format!("the time {now_ms} ms is out of range"))?
            .to_rfc3339_opts(SecondsFormat::Millis, true);
        let context = vec![
            ("tier".to_owned(), self.tier(*tier)),
            (
                "args".to_owned(),
                RestrictedExpression::new_entity_uid(args.clone()),
            ),
            (
                "argsHash".to_owned(),
                string(&Hash::of(arguments.as_bytes()).to_string()),
            ),
            ("now".to_owned(), RestrictedExpression::new_datetime(now)),
        ];
        let required = vec![principal.clone(), resource.clone(), parent, args];
        self.question(principal, resource, entities, context, required)
    }

    /// The question whether a server may ask the user something.
    pub(crate) fn elicitation(&self, question: &ElicitationQuestion<'_>) -> Result<Question, Unfit> {
        let ElicitationQuestion {
            agent,
            profile,
            tier,
            source,
            server,
            transport,
            mode,
            host,
        } = question;
        let (principal, mut entities) = self.agent(agent, profile);
        let resource = self.server(*source, server, transport, &mut entities)?;
        let context = vec![
            ("tier".to_owned(), self.tier(*tier)),
            ("mode".to_owned(), string(mode)),
            ("host".to_owned(), string(host)),
        ];
        let required = vec![principal.clone(), resource.clone()];
        self.question(principal, resource, entities, context, required)
    }

    /// The request for `action`, validated; in another tier than the question's where one is given.
    pub(crate) fn request(
        &self,
        question: &Question,
        action: &str,
        tier: Option<Tier>,
    ) -> Result<Request, Unfit> {
        let context = question.context.iter().map(|(name, value)| match tier {
            Some(tier) if name == "tier" => (name.clone(), self.tier(tier)),
            _ => (name.clone(), value.clone()),
        });
        let context = fit(Context::from_pairs(context))?;
        let action = uid(&self.types.action, action);
        fit(Request::new(
            question.principal.clone(),
            action,
            question.resource.clone(),
            context,
            Some(&self.schema),
        ))
    }

    fn question(
        &self,
        principal: EntityUid,
        resource: EntityUid,
        entities: Vec<Entity>,
        context: Vec<(String, RestrictedExpression)>,
        required: Vec<EntityUid>,
    ) -> Result<Question, Unfit> {
        let entities = fit(Entities::from_entities(entities, Some(&self.schema)))?;
        Ok(Question {
            principal,
            resource,
            entities,
            context,
            required,
        })
    }

    fn agent(&self, agent: &AgentId, profile: &AgentId) -> (EntityUid, Vec<Entity>) {
        let profile = uid(&self.types.profile, profile.as_str());
        let agent = uid(&self.types.agent, agent.as_str());
        let parents = HashSet::from([profile.clone()]);
        (
            agent.clone(),
            vec![
                Entity::new_no_attrs(profile, HashSet::new()),
                Entity::new_no_attrs(agent, parents),
            ],
        )
    }

    fn server(
        &self,
        source: Source,
        server: &ServerId,
        transport: &str,
        entities: &mut Vec<Entity>,
    ) -> Result<EntityUid, Unfit> {
        let server_uid = uid(&self.types.server, &format!("{}.{server}", source.as_str()));
        let attrs = HashMap::from([
            ("source".to_owned(), string(source.as_str())),
            ("name".to_owned(), string(server.as_str())),
            ("transport".to_owned(), string(transport)),
        ]);
        entities.push(fit(Entity::new(server_uid.clone(), attrs, HashSet::new()))?);
        Ok(server_uid)
    }

    fn tier(&self, tier: Tier) -> RestrictedExpression {
        RestrictedExpression::new_entity_uid(uid(&self.types.tier, tier.as_str()))
    }
}

fn tool_attrs(tool: &crate::ToolFacts) -> HashMap<String, RestrictedExpression> {
    let texts = [
        ("cap", tool.capability.to_string()),
        ("source", tool.capability.source().as_str().to_owned()),
        ("server", tool.capability.server().as_str().to_owned()),
        ("name", tool.capability.tool().to_owned()),
    ];
    let flags = [
        ("readOnly", tool.hints.read_only),
        ("destructive", tool.hints.destructive),
        ("idempotent", tool.hints.idempotent),
        ("openWorld", tool.hints.open_world),
        ("requiresUserInteraction", tool.requires_user_interaction),
        ("autoApprove", tool.auto_approve),
        ("definitionChanged", tool.definition_changed),
    ];
    let texts = texts.map(|(name, text)| (name.to_owned(), RestrictedExpression::new_string(text)));
    let flags = flags.map(|(name, flag)| (name.to_owned(), RestrictedExpression::new_bool(flag)));
    texts.into_iter().chain(flags).collect()
}

fn uid(kind: &EntityTypeName, id: &str) -> EntityUid {
    EntityUid::from_type_name_and_id(kind.clone(), EntityId::new(id))
}

fn string(text: &str) -> RestrictedExpression {
    RestrictedExpression::new_string(text.to_owned())
}

fn fit<T, E: std::fmt::Display>(result: Result<T, E>) -> Result<T, Unfit> {
    result.map_err(|error| error.to_string())
}
